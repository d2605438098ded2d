"""The connections of a client to its cluster, the cluster's metadata, and the coordinators."""
