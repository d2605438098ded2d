"""The client's exceptions; the trees are in `odradek_client.errors` and
`odradek_client.consumer.errors`."""

from odradek_client.consumer.errors import *
from odradek_client.errors import *
