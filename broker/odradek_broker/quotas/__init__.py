"""Quotas, which limit the rates of clients and addresses, and the throttle time of a client that
exceeds its quota.
"""
