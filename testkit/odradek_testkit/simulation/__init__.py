"""Broker and clients on one deterministic clock, disk and network.

`clock` has virtual time, `simulate` an event loop on virtual time, `disk` files that crash and
fail, `network` connections that are slow, cut or silent. Broker and clients run on them unchanged.
"""
