"""Broker and clients on one deterministic clock, disk and network.

`clock` has virtual time, `simulate` an event loop with it, `disk` files that crash and fail,
`network` connections that are slow, cut or silent. The code that runs on them is the product
itself.
"""
