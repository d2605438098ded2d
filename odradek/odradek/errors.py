"""The client's exceptions; their hierarchy is in `odradek_client.errors`,
`odradek_client.consumer.errors` and `odradek_client.share.errors`."""

from odradek_client.consumer.errors import *
from odradek_client.errors import *
from odradek_client.share.errors import *
