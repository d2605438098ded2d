"""The settings of producer, consumer and admin: how one is declared, and the tables of them."""
