"""Changes and descriptions of settings, one kind of resource per file."""
