"""The producer: buffers records in batches, sends them, and reports the outcome of every record."""
