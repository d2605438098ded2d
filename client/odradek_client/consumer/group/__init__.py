"""The membership of a consumer in its group, and the committed offsets of the group.

`classic_membership` and `consumer_membership` (KIP-848), based on `membership`, make the decisions;
`classic_loop` and `consumer_loop`, based on `group_loop`, carry them out. `coordinator` sends
requests to the group's coordinator; `offsets` commits and fetches offsets.
"""
