"""Quotas in the cluster metadata: what changes of them are taken, and how they are described."""
