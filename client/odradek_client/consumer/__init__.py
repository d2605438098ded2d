"""The consumer.

`consumer` has the public class. `poll_loop` carries out a poll; to find positions it uses
`list_offsets`, `offset_reset` and `position_validation`. `fetcher` sends Fetch requests, and
`completed_fetch` decodes the records in their answers. `subscription_state` keeps the assigned
partitions and their positions. `group` has the membership in a group, `assignors` the assignment
strategies.
"""
