"""Public names of `odradek_testkit.faults`."""

from odradek_testkit.faults import (
    Apis,
    ExpiredLock,
    Fault,
    FaultRefused,
    Faults,
    FaultUnused,
    Send,
)

__all__ = ["Apis", "ExpiredLock", "Fault", "FaultRefused", "FaultUnused", "Faults", "Send"]
