"""Apache Kafka's answers to users with and without the rights that a request needs, and the effects
of the request.

    python -m tests.oracle.rights record [NAME*]    ask an Apache Kafka with ACLs and SASL again
    python -m tests.oracle.rights list [NAME*]      the cases and their cells
    python -m tests.oracle.rights random            start Kafka and ours, play random cells

A case (`cases/`) is one request with the rights that it needs. A cell (`cells.py`) of the case is
one user: without any ACL; with all of those rights; without one of them, or with a denial of one; a
super user; ANONYMOUS.

A random cell (`random_cells.py`) is a user with some arbitrary ACLs, who sends arbitrary requests,
or a super user who creates, describes and deletes arbitrary ACLs.
"""
