"""Settings of brokers with SASL, and of their clients."""

from __future__ import annotations

from typing import Any

_MODULES = "org.apache.kafka.common.security"

#: The password of `admin`, who uses PLAIN; tests store other users themselves.
ADMIN_PASSWORD = "admin-secret"
LISTENER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{_MODULES}.plain.PlainLoginModule required user_admin="{ADMIN_PASSWORD}";'
    ),
    "group.initial.rebalance.delay.ms": "0",
}


def as_admin(bootstrap: str) -> dict[str, Any]:
    """The settings of a client that authenticates as `admin`."""
    return as_user(bootstrap, "PLAIN", "admin", ADMIN_PASSWORD)


def as_user(bootstrap: str, mechanism: str, username: str, password: str) -> dict[str, Any]:
    """The settings of a client that authenticates as this user."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": username,
        "sasl_password": password,
    }


def scram_line(username: str, password: str) -> str:
    """The login module of SCRAM, as a value of sasl.jaas.config."""
    return (
        f'{_MODULES}.scram.ScramLoginModule required username="{username}" password="{password}";'
    )
