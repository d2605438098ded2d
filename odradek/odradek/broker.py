"""Public names of `odradek_testkit.broker`."""

from odradek_testkit.broker import (
    Broker,
    BrokerFailed,
    Mode,
    SubprocessBroker,
    can_be_read,
)

__all__ = ["Broker", "BrokerFailed", "Mode", "SubprocessBroker", "can_be_read"]
