"""`odradek demo`: all features, shown with real data. PYTEST_DONT_REWRITE"""
