"""Public names of `odradek_client.sync`."""

from odradek_client.sync import (
    Admin,
    ArrowDelivery,
    Consumer,
    Delivery,
    Producer,
    ShareConsumer,
)

__all__ = ["Admin", "ArrowDelivery", "Consumer", "Delivery", "Producer", "ShareConsumer"]
