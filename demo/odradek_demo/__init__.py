"""`odradek demo`: all features, shown with real data."""
