"""Other brokers that this one can emulate: their versions, features and limits."""
