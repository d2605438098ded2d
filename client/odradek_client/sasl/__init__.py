"""How a client says who it is: its side of the mechanisms of SASL, and where passwords and tokens
come from."""
