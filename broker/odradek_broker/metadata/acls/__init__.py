"""ACLs: created, deleted, and filters of them."""
