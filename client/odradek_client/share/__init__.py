"""The share consumer: a member of a share group. The application acknowledges each record
separately."""
