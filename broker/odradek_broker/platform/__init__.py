"""The interfaces to the machine: clock, files, randomness, fault points, log lines."""
