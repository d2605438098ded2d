"""TLS for both sides: keystores and truststores as Kafka names them, contexts, handshakes, the
words for what goes wrong.

`stores` and `ciphers` take bytes and texts; `files` reads them, `contexts` and `handshake` are
about Python's ssl.
"""
