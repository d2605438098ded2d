"""Quotas: limits of the rates of clients and addresses, and the throttle time of a client that
exceeds one."""
