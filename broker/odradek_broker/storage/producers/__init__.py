"""Producer state of a partition: sequences, epochs, open transactions."""
