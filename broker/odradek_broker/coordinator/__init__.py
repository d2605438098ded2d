"""Group and transaction coordinators, and the runtime under both."""
