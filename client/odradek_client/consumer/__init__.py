"""The consumer.

`consumer` is the public class. `poll_loop` carries out a poll, and finds positions, with
`list_offsets`, `offset_reset` and `position_validation`; `fetcher`, with `completed_fetch`, makes
Fetch requests, and records of their answers; `subscription_state` keeps the assigned partitions and
their positions. `group` is the membership in a group, `assignors` its
assignment strategies.
"""
