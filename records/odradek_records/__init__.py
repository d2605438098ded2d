"""Records as people write and read them: offsets, times, formats, filters, decoders, lag.

The room below all tools: the command line, the console, the mirror and the test kit import it.

PYTEST_DONT_REWRITE
"""
