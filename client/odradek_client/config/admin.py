"""The settings of an admin client."""

from __future__ import annotations

from odradek_client.config.common import ClientConfig
from odradek_client.config.definition import config, setting


@config
class AdminConfig(ClientConfig):
    """Settings of `Admin`."""

    client_id: str = setting("odradek-admin", doc="A name of this client for the broker's logs.")
    allow_auto_create_topics: bool = setting(
        False, doc="Let a request for the metadata of an unknown topic create it."
    )
