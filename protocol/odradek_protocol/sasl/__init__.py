"""SASL, as clients and brokers of Kafka speak it: what both sides know of its mechanisms. Bytes in,
bytes out."""
