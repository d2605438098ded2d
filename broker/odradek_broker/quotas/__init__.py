"""Quotas: rates that clients and addresses are held to, and how long whoever exceeds one has to
wait."""
