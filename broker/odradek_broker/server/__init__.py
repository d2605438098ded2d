"""Sockets, connections, and the path of a request from the socket to its handler."""
