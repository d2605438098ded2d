"""Properties that must hold under any faults, one in each file."""
