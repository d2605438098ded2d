"""The history of groups, transactional ids and producer ids, in words for people (`odradek
explain`)."""
