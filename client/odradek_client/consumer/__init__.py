"""The consumer.

`consumer` is the public class. `poll_loop` carries out a poll, and finds positions, with
`list_offsets`, `offset_reset` and `position_validation`; `fetcher`, with `completed_fetch`, makes
Fetch requests and decodes records of the answers; `subscription_state` keeps the assigned
partitions and their positions. `group` has the membership in a group, `assignors` the assignment
strategies.
"""
