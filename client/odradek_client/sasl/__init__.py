"""The client's side of the SASL mechanisms, and the sources of passwords and tokens."""
