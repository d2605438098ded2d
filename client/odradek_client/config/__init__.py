"""The settings of producer, consumer and admin: their tables, and the declaration of a setting."""
