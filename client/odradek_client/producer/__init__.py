"""The producer: accumulate, send, account for every record."""
