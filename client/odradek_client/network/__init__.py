"""The connections of a client to its cluster, the metadata it learns there, and the coordinators it
finds."""
