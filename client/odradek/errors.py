"""What the client raises; the tree is in `odradek_client.errors`."""

from odradek_client.errors import *
