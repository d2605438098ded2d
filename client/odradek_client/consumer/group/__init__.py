"""Membership of a consumer in its group, and the offsets that the group keeps.

`classic_membership` and `consumer_membership` (KIP-848) decide, on `membership`; `classic_loop` and
`consumer_loop` carry that out, on `group_loop`. Both have a `coordinator` to ask, `offsets` to
commit, `auto_commit` for their timer, and a `rebalance` that hands partitions over.
"""
