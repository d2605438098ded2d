"""The share consumer: a member of a share group, whose records are acknowledged one by one."""
