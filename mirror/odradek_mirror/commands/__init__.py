"""`odradek mirror` and its subcommands."""
