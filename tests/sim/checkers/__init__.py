"""Properties that must hold whatever happens: one in each file."""
