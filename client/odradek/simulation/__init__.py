"""Broker and clients on one deterministic clock, disk and network.

`clock` has virtual time, `loop` an event loop that lives on it, `disk` files that crash and fail,
`network` connections that are slow, cut or silent. What runs on them is the shipped code.
"""
