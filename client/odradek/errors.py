"""The client's exceptions; their hierarchy is in `odradek_client.errors` and
`odradek_client.consumer.errors`."""

from odradek_client.consumer.errors import *
from odradek_client.errors import *
