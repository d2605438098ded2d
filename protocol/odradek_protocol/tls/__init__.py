"""TLS for both sides: keystores and truststores with Kafka's names, contexts, handshakes, error
messages.

`stores` works on bytes and texts; `files` reads them; `contexts` and `handshake` use Python's ssl.
"""
