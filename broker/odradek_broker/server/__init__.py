"""Sockets, connections, and the way of a request to its handler."""
