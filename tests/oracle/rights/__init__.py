"""Apache Kafka's answers to users with and without the rights for a request, and the effects.

    python -m tests.oracle.rights record [NAME*]    ask an Apache Kafka with ACLs and SASL again
    python -m tests.oracle.rights list [NAME*]      the cases and their cells

A case (`cases/`) is one request with the rights that it needs. Its cells (`cells.py`) are users:
one without any ACL, one with all of those rights, some without one of them or with a denial, a
super user, and ANONYMOUS.
"""
