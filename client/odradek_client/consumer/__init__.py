"""The consumer.

`consumer` is the public class. Under it `poll_loop` carries a poll out; `fetcher`, with
`fetch_session` and `completed_fetch`, decides on Fetch requests and makes records of their answers;
`offset_fetcher` finds positions, by `list_offsets`, `offset_reset` and `position_validation`;
`subscription_state` keeps what is assigned and how far it is read. `group` is the membership in a
group, `assignors` its assignment strategies.
"""
