"""The machine: clock, files, randomness, fault points, log lines."""
