"""Commands about a whole cluster: settings, rights, transactions, and what happens there."""
