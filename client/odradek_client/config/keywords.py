"""The settings as keyword arguments of the clients, for editors and type checkers.

Made by `python -m docs.references`. A test compares
this file with the tables of settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from odradek_client.consumer.assignors import Assignor


class ClientSettings(TypedDict, total=False):
    """The settings of all clients."""

    bootstrap_servers: str | Iterable[str]
    """The first brokers to connect to, "host:port,host:port" or a list; one broker of the cluster is enough. Default: 127.0.0.1:9092."""
    request_timeout_ms: int
    """Maximum time to wait for the response to a request. Default: 30000."""
    default_api_timeout_ms: int
    """The timeout of calls that are made without one of their own. Default: 60000."""
    retry_backoff_ms: int
    """Wait before the first retry; it doubles with each retry. Default: 100."""
    retry_backoff_max_ms: int
    """Maximum wait before a retry. Default: 1000."""
    reconnect_backoff_ms: int
    """Wait before the first reconnection; it doubles with each attempt. Default: 50."""
    reconnect_backoff_max_ms: int
    """Maximum wait before a reconnection. Default: 1000."""
    socket_connection_setup_timeout_ms: int
    """Maximum time for opening a connection. Default: 10000."""
    connections_max_idle_ms: int
    """Time after which an unused connection is closed. Default: 540000."""
    metadata_max_age_ms: int
    """Maximum age of metadata, after which it is requested again. Default: 300000."""
    receive_max_bytes: int
    """Maximum size of a response; a larger one closes the connection. Default: 268435456."""
    security_protocol: str
    """The protection of connections: TLS with SSL and SASL_SSL, authentication with SASL_PLAINTEXT and SASL_SSL, none with PLAINTEXT. Default: PLAINTEXT."""
    ssl_truststore_type: str
    """The type of the store with the certificate authorities: PEM, PKCS12 or JKS, which is read as PKCS12. Default: JKS."""
    ssl_truststore_location: str
    """The file with the trusted certificate authorities; if not set, those that the system trusts. Default: none."""
    ssl_truststore_password: str
    """The password of the truststore. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    ssl_truststore_certificates: str
    """The certificate authorities as PEM text, instead of a file. Default: none."""
    ssl_keystore_type: str
    """The type of the store with the client's certificate: PEM, PKCS12 or JKS, which is read as PKCS12. Default: JKS."""
    ssl_keystore_location: str
    """The file with the client's private key and certificates, for brokers that require a client certificate. Default: none."""
    ssl_keystore_password: str
    """The password of the keystore. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    ssl_keystore_key: str
    """The private key as PEM text, instead of a file. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    ssl_keystore_certificate_chain: str
    """The certificate of ssl_keystore_key and the chain of its issuers, as PEM text. Default: none."""
    ssl_key_password: str
    """The password of an encrypted private key. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    ssl_endpoint_identification_algorithm: Literal["https", ""]
    """https: the broker's certificate must have the name that the client connects to; empty: any name. One of https, empty. Default: https."""
    ssl_enabled_protocols: str | Iterable[str]
    """The versions of TLS that may be used. One of TLSv1.2, TLSv1.3. Default: TLSv1.2,TLSv1.3."""
    ssl_cipher_suites: str | Iterable[str]
    """The cipher suites that may be used, by their names in Java or OpenSSL; empty: OpenSSL's default. Default: none."""
    ssl_protocol: str
    """Accepted without effect: ssl_enabled_protocols has the versions of TLS. Default: TLSv1.3."""
    sasl_mechanism: str
    """The SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kafka's default, GSSAPI, is not supported. Default: GSSAPI."""
    sasl_jaas_config: str
    """The name and password, or the options of OAUTHBEARER, in one line, as a login module of Java. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    sasl_username: str
    """The name of the user, for PLAIN and SCRAM. Default: none."""
    sasl_password: str
    """The user's password. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    sasl_token_auth: bool
    """True: the SCRAM user is the id of a delegation token, and the password is its HMAC in base64. In a sasl_jaas_config the option is tokenauth=true. Default: False."""
    sasl_oauth_token_provider: Callable[[], Any] | None
    """A function that returns an OAUTHBEARER token. It has no arguments, may be async, and returns the token with its expiry in seconds since the epoch, or a JWT alone. Default: none."""
    sasl_oauthbearer_method: Literal["default", "oidc"]
    """A setting of librdkafka: oidc needs sasl_oauthbearer_token_endpoint_url. One of default, oidc. Default: default."""
    sasl_oauthbearer_token_endpoint_url: str
    """The endpoint that gives OAUTHBEARER tokens for client credentials; or file:///PATH of a file with a token. Default: none."""
    sasl_oauthbearer_client_credentials_client_id: str
    """The client's id at the token endpoint. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    sasl_oauthbearer_client_credentials_client_secret: str
    """The client's secret at the token endpoint. It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}. Default: none."""
    sasl_oauthbearer_scope: str
    """The scope that is requested at the token endpoint. Default: none."""
    sasl_oauthbearer_header_urlencode: bool
    """URL-encode the client's id and secret, which RFC 6749 requires and few endpoints expect. Default: False."""
    sasl_oauthbearer_jwt_retriever_class: str
    """Accepted without effect if it is one of Kafka's classes that are built in here. Default: none."""
    sasl_login_callback_handler_class: str
    """Accepted without effect if it is Kafka's OAuthBearerLoginCallbackHandler. Default: none."""
    sasl_login_connect_timeout_ms: int
    """Maximum time for connecting to the token endpoint. Default: 10000."""
    sasl_login_read_timeout_ms: int
    """Maximum time to wait for the response of the token endpoint. Default: 10000."""
    sasl_login_retry_backoff_ms: int
    """Wait before the first retry at the token endpoint; it doubles with each retry. Default: 100."""
    sasl_login_retry_backoff_max_ms: int
    """Maximum time for retries at an overloaded token endpoint. Default: 10000."""
    sasl_login_refresh_window_factor: float
    """The part of a token's lifetime after which the token is replaced. Default: 0.8."""
    sasl_login_refresh_window_jitter: float
    """Maximum random delay of the replacement, as a part of the token's lifetime. Default: 0.05."""
    sasl_login_refresh_min_period_seconds: int
    """Minimum time between two replacements of the token. Default: 60."""
    sasl_login_refresh_buffer_seconds: int
    """Minimum time before a token's expiry at which the token is replaced. Default: 300."""


class ProducerSettings(ClientSettings, total=False):
    """The settings of `Producer`, in addition to those of all clients."""

    client_id: str
    """A name of this client for the broker's logs. Default: odradek-producer."""
    max_in_flight_requests_per_connection: int
    """Maximum number of unanswered Produce requests per broker. Default: 5."""
    allow_auto_create_topics: bool
    """Let the broker create unknown topics that the client uses, if its own settings allow that. Default: True."""
    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """The acknowledgement that a record needs. "all" (or -1): of all in-sync replicas; 1: of the leader; 0: none, the record is only sent. Default: -1."""
    enable_idempotence: bool
    """Write every record once and in order in its partition, even after retries. Default: True."""
    retries: int
    """Maximum number of retries of a batch, within delivery_timeout_ms. Default: 2147483647."""
    batch_size: int
    """Size in bytes at which a batch is full. Default: 16384."""
    linger_ms: int
    """Maximum time that a batch waits for more records. Default: 5."""
    buffer_memory: int
    """Maximum bytes of records that wait to be sent and acknowledged. Default: 33554432."""
    max_request_size: int
    """Maximum size of a request, and of a record. Default: 1048576."""
    max_block_ms: int
    """Maximum time that `send` waits for metadata or for memory. Default: 60000."""
    delivery_timeout_ms: int
    """Maximum time from `send` to the acknowledgement of a record. Default: 120000."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """The compression type of batches. One of none, gzip, snappy, lz4, zstd. Default: none."""
    partitioner: str | Callable[[str, bytes | None, int], int]
    """ "default" (by key; records without a key: sticky), "round_robin", or f(topic, key, partitions) -> number. Default: default."""
    key_serializer: Callable[[Any], bytes | None] | None
    """A function from keys to bytes. Default: none."""
    value_serializer: Callable[[Any], bytes | None] | None
    """A function from values to bytes. Default: none."""
    metadata_max_idle_ms: int
    """Time after which the metadata of an unused topic is dropped. Default: 300000."""
    transactional_id: str | None
    """The name of the producer across restarts; it turns transactions on. Default: none."""
    transaction_timeout_ms: int
    """Time after which the broker aborts an open transaction. Default: 60000."""
    transaction_two_phase_commit_enable: bool
    """Transactions do not time out, so that prepared ones are never aborted by a timeout (KIP-939). Default: False."""


class ConsumerSettings(ClientSettings, total=False):
    """The settings of `Consumer`, in addition to those of all clients."""

    client_id: str
    """A name of this client for the broker's logs. Default: odradek-consumer."""
    max_in_flight_requests_per_connection: int
    """Maximum number of unanswered requests on one connection. Default: 100."""
    allow_auto_create_topics: bool
    """Let the broker create unknown topics that the client uses, if its own settings allow that. Default: True."""
    group_id: str | None
    """The consumer group, whose members share the partitions and commit offsets. Default: none."""
    group_instance_id: str | None
    """The name of a static member, which may restart without a rebalance. Default: none."""
    group_protocol: Literal["classic", "consumer"]
    """The protocol of the group. "classic": a member assigns the partitions; "consumer": the broker assigns them (KIP-848). One of classic, consumer. Default: classic."""
    group_remote_assignor: str | None
    """The assignor of the broker for group_protocol="consumer": "uniform" or "range"; None: the broker's default. Default: none."""
    auto_offset_reset: str | timedelta
    """The start position without a committed offset: earliest, latest, none (an error is raised), or by_duration:PT1H (in Python also a timedelta) for the records of the last hour. Default: latest."""
    enable_auto_commit: bool
    """Commit the offsets of earlier polls in the background. Default: True."""
    auto_commit_interval_ms: int
    """Time between two commits in the background. Default: 5000."""
    session_timeout_ms: int
    """Time without a heartbeat after which the group removes a member. Default: 45000."""
    heartbeat_interval_ms: int
    """Time between two heartbeats. Default: 3000."""
    max_poll_interval_ms: int
    """Maximum time between two polls, after which the member leaves the group. Default: 300000."""
    max_poll_records: int
    """Maximum number of records that a poll returns. Default: 500."""
    fetch_min_bytes: int
    """Minimum bytes of records for which the broker waits before it answers a fetch. Default: 1."""
    fetch_max_wait_ms: int
    """Maximum time that the broker waits for fetch_min_bytes. Default: 500."""
    fetch_max_bytes: int
    """Maximum bytes of one fetch from all partitions. Default: 52428800."""
    max_partition_fetch_bytes: int
    """Maximum bytes of one fetch from one partition. Default: 1048576."""
    check_crcs: bool
    """Verify the checksums of batches. Default: True."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """read_committed: the consumer gets no records of open or aborted transactions. One of read_uncommitted, read_committed. Default: read_uncommitted."""
    partition_assignment_strategy: str | Assignor | Sequence[str | Assignor]
    """The assignors in the order of preference: range, roundrobin, sticky, cooperative-sticky, or your own Assignor objects. Default: range,cooperative-sticky."""
    exclude_internal_topics: bool
    """Exclude internal topics from pattern subscriptions. Default: True."""
    key_deserializer: Callable[[bytes], Any] | None
    """A function from bytes to keys; it is not called for null. Default: none."""
    value_deserializer: Callable[[bytes], Any] | None
    """A function from bytes to values; it is not called for null. Default: none."""


class ShareConsumerSettings(ClientSettings, total=False):
    """The settings of `ShareConsumer`, in addition to those of all clients."""

    client_id: str
    """A name of this client for the broker's logs. Default: odradek-share-consumer."""
    max_in_flight_requests_per_connection: int
    """Maximum number of unanswered requests on one connection. Default: 100."""
    allow_auto_create_topics: bool
    """Let the broker create unknown topics that the client uses, if its own settings allow that. Default: True."""
    group_id: str | None
    """The share group, whose members share the records. Required. Default: none."""
    client_rack: str
    """The rack of this client, which the group's assignor may use. Default: none."""
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    """implicit: the next poll accepts the records that earlier polls returned, except those that are acknowledged already or are in `async with record`; explicit: every record needs an acknowledgement of its own. One of implicit, explicit. Default: implicit."""
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    """batch_optimized: the broker returns whole batches, so that the client may buffer more records than it requested; record_limit: it never returns more records than requested, and the client fetches from one broker at a time. One of batch_optimized, record_limit. Default: batch_optimized."""
    max_poll_records: int
    """Maximum number of records that a poll returns. Default: 500."""
    max_in_flight: int
    """Maximum number of records that the application has received and not acknowledged; polls wait at this limit. Default: 2000."""
    max_poll_interval_ms: int
    """Maximum time between two polls, and maximum time for which the lock of a record is renewed. Default: 300000."""
    renew_locks: bool
    """Renew the lock of a record while it is in `async with record`, if the group's setting share.renew.acknowledge.enable allows it. Default: True."""
    unreadable_records: Literal["release", "reject"]
    """The acknowledgement of records that cannot be read, because of the deserializer or a damaged batch. release: they are delivered again, up to the group's delivery limit, because another version of the program may be able to read them; reject: they are not delivered again. One of release, reject. Default: release."""
    fetch_min_bytes: int
    """Minimum bytes of records for which the broker waits before it answers a fetch. Default: 1."""
    fetch_max_wait_ms: int
    """Maximum time that the broker waits for fetch_min_bytes. Default: 500."""
    fetch_max_bytes: int
    """Maximum bytes of one fetch from all partitions. Default: 52428800."""
    check_crcs: bool
    """Verify the checksums of batches. Default: True."""
    key_deserializer: Callable[[bytes], Any] | None
    """A function from bytes to keys; it is not called for null. Default: none."""
    value_deserializer: Callable[[bytes], Any] | None
    """A function from bytes to values; it is not called for null. Default: none."""


class AdminSettings(ClientSettings, total=False):
    """The settings of `Admin`, in addition to those of all clients."""

    client_id: str
    """A name of this client for the broker's logs. Default: odradek-admin."""
    max_in_flight_requests_per_connection: int
    """Maximum number of unanswered requests on one connection. Default: 100."""
    allow_auto_create_topics: bool
    """Let a request for the metadata of an unknown topic create it. Default: False."""
