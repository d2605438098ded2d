"""The settings as keyword arguments of the clients, for editors and type checkers.

Made by `python -m odradek_client.config.keywords_maker > client/odradek_client/config/keywords.py`; a test holds it
equal to the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from odradek_client.consumer.assignors import Assignor


class ClientSettings(TypedDict, total=False):
    """The settings that every client has."""

    bootstrap_servers: str | Iterable[str]
    """Brokers to ask first, "host:port,host:port" or a list; any broker of the cluster does. Default: 127.0.0.1:9092."""
    request_timeout_ms: int
    """The longest wait for the answer to a request. Default: 30000."""
    default_api_timeout_ms: int
    """The timeout of calls that take none of their own. Default: 60000."""
    retry_backoff_ms: int
    """Wait before the first retry; doubled every time. Default: 100."""
    retry_backoff_max_ms: int
    """The longest wait before a retry. Default: 1000."""
    reconnect_backoff_ms: int
    """Wait before connecting again; doubled every time. Default: 50."""
    reconnect_backoff_max_ms: int
    """The longest wait before connecting again. Default: 1000."""
    socket_connection_setup_timeout_ms: int
    """The longest time for making a connection. Default: 10000."""
    connections_max_idle_ms: int
    """Close connections that were not used for this time. Default: 540000."""
    metadata_max_age_ms: int
    """The longest time between two requests for metadata. Default: 300000."""
    receive_max_bytes: int
    """The largest answer that is accepted; a larger one closes the connection. Default: 268435456."""
    security_protocol: str
    """The protection of connections: TLS with SSL and SASL_SSL, authentication with SASL_PLAINTEXT and SASL_SSL, none with PLAINTEXT. Default: PLAINTEXT."""
    ssl_truststore_type: str
    """The kind of store with the authorities: PEM, PKCS12 or JKS, which is taken for PKCS12. Default: JKS."""
    ssl_truststore_location: str
    """The file with the authorities whose certificates are trusted; without one those that the system trusts. Default: none."""
    ssl_truststore_password: str
    """The password of the truststore. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    ssl_truststore_certificates: str
    """The authorities, as PEM text in the place of a file. Default: none."""
    ssl_keystore_type: str
    """The kind of store with the client's own certificate: PEM, PKCS12 or JKS, which is taken for PKCS12. Default: JKS."""
    ssl_keystore_location: str
    """The file with the client's private key and certificates, where brokers ask for one. Default: none."""
    ssl_keystore_password: str
    """The password of the keystore. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    ssl_keystore_key: str
    """The private key, as PEM text in the place of a file. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    ssl_keystore_certificate_chain: str
    """The certificate of ssl_keystore_key, and those that lead to its authority, as PEM text. Default: none."""
    ssl_key_password: str
    """The password of an encrypted private key. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    ssl_endpoint_identification_algorithm: str
    """https: the broker's certificate must have the name that the client connects to; empty: any name. One of https, empty. Default: https."""
    ssl_enabled_protocols: str | Iterable[str]
    """The versions of TLS that may be used. One of TLSv1.2, TLSv1.3. Default: TLSv1.2,TLSv1.3."""
    ssl_cipher_suites: str | Iterable[str]
    """The cipher suites that are used, by the names of Java or of OpenSSL; empty: OpenSSL's. Default: none."""
    ssl_protocol: str
    """Accepted without effect: ssl_enabled_protocols has the versions. Default: TLSv1.3."""
    sasl_mechanism: str
    """The mechanism of authentication: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kafka's default is not supported. Default: GSSAPI."""
    sasl_jaas_config: str
    """Name and password, or options of OAUTHBEARER, as a login module of Java in one line. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    sasl_username: str
    """The user of PLAIN and SCRAM. Default: none."""
    sasl_password: str
    """The user's password. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    sasl_token_auth: bool
    """The user of SCRAM is the id of a delegation token, and the password its HMAC in base64. In a sasl_jaas_config the option is tokenauth=true. Default: False."""
    sasl_oauth_token_provider: Callable[[], Any] | None
    """Gives a token of OAUTHBEARER: a function without arguments, async or not, that returns the token and its end in seconds since the epoch, or a JWT alone. Default: none."""
    sasl_oauthbearer_method: str
    """Of librdkafka: oidc wants sasl_oauthbearer_token_endpoint_url. One of default, oidc. Default: default."""
    sasl_oauthbearer_token_endpoint_url: str
    """The endpoint for tokens of OAUTHBEARER, by the client credentials grant; or file:///PATH of a file with a token. Default: none."""
    sasl_oauthbearer_client_credentials_client_id: str
    """The client's id at the token endpoint. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    sasl_oauthbearer_client_credentials_client_secret: str
    """The client's secret at the token endpoint. ${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere. Default: none."""
    sasl_oauthbearer_scope: str
    """The scope that is requested at the token endpoint. Default: none."""
    sasl_oauthbearer_header_urlencode: bool
    """Encode id and secret as in URLs, which RFC 6749 demands and few endpoints expect. Default: False."""
    sasl_oauthbearer_jwt_retriever_class: str
    """Accepted without effect if it is one of Kafka's classes that are built in here. Default: none."""
    sasl_login_callback_handler_class: str
    """Accepted without effect if it is Kafka's OAuthBearerLoginCallbackHandler. Default: none."""
    sasl_login_connect_timeout_ms: int
    """The longest time for connecting to the token endpoint. Default: 10000."""
    sasl_login_read_timeout_ms: int
    """The longest wait for the answer of the token endpoint. Default: 10000."""
    sasl_login_retry_backoff_ms: int
    """Wait before the token endpoint is asked again; doubled every time. Default: 100."""
    sasl_login_retry_backoff_max_ms: int
    """The time for which an overloaded token endpoint is asked again. Default: 10000."""
    sasl_login_refresh_window_factor: float
    """The part of its lifetime after which a token is replaced. Default: 0.8."""
    sasl_login_refresh_window_jitter: float
    """The largest part of its lifetime by which that is delayed at random. Default: 0.05."""
    sasl_login_refresh_min_period_seconds: int
    """The shortest time between two tokens. Default: 60."""
    sasl_login_refresh_buffer_seconds: int
    """The shortest time before its end at which a token is replaced. Default: 300."""


class ProducerSettings(ClientSettings, total=False):
    """The settings that `Producer` has besides."""

    client_id: str
    """A name that the broker shows in its logs. Default: odradek-producer."""
    max_in_flight_requests_per_connection: int
    """Unanswered produce requests per broker. Default: 5."""
    allow_auto_create_topics: bool
    """Let the broker create unknown topics that are used, if it does so at all. Default: True."""
    acks: int | str
    """The condition for a record to count as written: "all" (or -1): by all replicas in sync; 1: by the leader; 0: sent. Default: -1."""
    enable_idempotence: bool
    """Every record once and in order per partition, whatever is retried. Default: True."""
    retries: int
    """Retries of a batch within delivery_timeout_ms. Default: 2147483647."""
    batch_size: int
    """The size in bytes at which a batch is full. Default: 16384."""
    linger_ms: int
    """The longest wait of a record for others. Default: 5."""
    buffer_memory: int
    """Bytes of records that wait for the broker. Default: 33554432."""
    max_request_size: int
    """The largest request, and the largest record. Default: 1048576."""
    max_block_ms: int
    """The longest wait of `send` for metadata or for room. Default: 60000."""
    delivery_timeout_ms: int
    """The longest time from `send` to the answer for a record. Default: 120000."""
    compression_type: str
    """The compression of batches. One of none, gzip, snappy, lz4, zstd. Default: none."""
    partitioner: str | Callable[[str, bytes | None, int], int]
    """ "default" (by key, else sticky), "round_robin", or f(topic, key, partitions) -> number. Default: default."""
    key_serializer: Callable[[Any], bytes | None] | None
    """Makes bytes of keys. Default: none."""
    value_serializer: Callable[[Any], bytes | None] | None
    """Makes bytes of values. Default: none."""
    metadata_max_idle_ms: int
    """Forget topics that were not used for this time. Default: 300000."""
    transactional_id: str | None
    """Names the producer across restarts; turns transactions on. Default: none."""
    transaction_timeout_ms: int
    """The time after which the broker aborts an open transaction. Default: 60000."""
    transaction_two_phase_commit_enable: bool
    """Let no transaction time out, so that prepared ones are safe (KIP-939). Default: False."""


class ConsumerSettings(ClientSettings, total=False):
    """The settings that `Consumer` has besides."""

    client_id: str
    """A name that the broker shows in its logs. Default: odradek-consumer."""
    max_in_flight_requests_per_connection: int
    """Unanswered requests on one connection. Default: 100."""
    allow_auto_create_topics: bool
    """Let the broker create unknown topics that are used, if it does so at all. Default: True."""
    group_id: str | None
    """The group that shares the partitions and keeps the offsets. Default: none."""
    group_instance_id: str | None
    """Names a static member, which may restart without a rebalance. Default: none."""
    group_protocol: str
    """The protocol of the group: "classic": members divide the partitions; "consumer": the broker does (KIP-848). One of classic, consumer. Default: classic."""
    group_remote_assignor: str | None
    """With group_protocol="consumer": the assignor of the broker, "uniform" or "range"; None for its default. Default: none."""
    auto_offset_reset: str | timedelta
    """The start without a committed offset: earliest, latest, none (raise), or by_duration:PT1H (in Python also a timedelta) for the records of the last hour. Default: latest."""
    enable_auto_commit: bool
    """Commit the records of earlier polls in the background. Default: True."""
    auto_commit_interval_ms: int
    """The time between two commits in the background. Default: 5000."""
    session_timeout_ms: int
    """The group removes a member that is silent for this time. Default: 45000."""
    heartbeat_interval_ms: int
    """The time between two heartbeats. Default: 3000."""
    max_poll_interval_ms: int
    """The longest pause between two polls. Default: 300000."""
    max_poll_records: int
    """The most records that a poll returns. Default: 500."""
    fetch_min_bytes: int
    """The bytes for which the broker waits before it answers a fetch. Default: 1."""
    fetch_max_wait_ms: int
    """The longest time that it waits for fetch_min_bytes. Default: 500."""
    fetch_max_bytes: int
    """Bytes of one fetch, over all partitions. Default: 52428800."""
    max_partition_fetch_bytes: int
    """Bytes of one fetch, of one partition. Default: 1048576."""
    check_crcs: bool
    """Check that batches arrived undamaged. Default: True."""
    isolation_level: str
    """read_committed leaves out records of open and aborted transactions. One of read_uncommitted, read_committed. Default: read_uncommitted."""
    partition_assignment_strategy: str | Assignor | Sequence[str | Assignor]
    """The assignors, best first: range, roundrobin, sticky, cooperative-sticky, or Assignor objects of your own. Default: range,cooperative-sticky."""
    exclude_internal_topics: bool
    """Let patterns skip the broker's own topics. Default: True."""
    key_deserializer: Callable[[bytes], Any] | None
    """Makes keys of bytes; not called for null. Default: none."""
    value_deserializer: Callable[[bytes], Any] | None
    """Makes values of bytes; not called for null. Default: none."""


class ShareConsumerSettings(ClientSettings, total=False):
    """The settings that `ShareConsumer` has besides."""

    client_id: str
    """A name that the broker shows in its logs. Default: odradek-share-consumer."""
    max_in_flight_requests_per_connection: int
    """Unanswered requests on one connection. Default: 100."""
    allow_auto_create_topics: bool
    """Let the broker create unknown topics that are used, if it does so at all. Default: True."""
    group_id: str | None
    """The share group, whose members share the records. Required. Default: none."""
    client_rack: str
    """The rack of this client, which the group's assignor may use. Default: none."""
    share_acknowledgement_mode: str
    """implicit: the next poll accepts what earlier polls returned, except for records that have an answer or are in `async with record`; explicit: only answers count. One of implicit, explicit. Default: implicit."""
    share_acquire_mode: str
    """batch_optimized: the broker lends whole batches, so perhaps more records than asked for, which wait here; record_limit: never more than asked for, from one broker at a time. One of batch_optimized, record_limit. Default: batch_optimized."""
    max_poll_records: int
    """The most records one poll returns. Default: 500."""
    max_in_flight: int
    """The most records that the application has without having answered them; polls wait while it has so many. Default: 2000."""
    max_poll_interval_ms: int
    """The longest pause between two polls, and the longest time for which the lock of a record is renewed. Default: 300000."""
    renew_locks: bool
    """Renew the lock of a record while it is in `async with record`, if the group's setting share.renew.acknowledge.enable allows it. Default: True."""
    unreadable_records: str
    """The answer to records that a deserializer or a damaged batch makes unreadable. release: they are delivered again, since another version of the program may read them, and the group's delivery limit ends the retries; reject: they are not delivered again. One of release, reject. Default: release."""
    fetch_min_bytes: int
    """The broker waits until it has so much to send. Default: 1."""
    fetch_max_wait_ms: int
    """But no longer than this. Default: 500."""
    fetch_max_bytes: int
    """Bytes of one fetch, over all partitions. Default: 52428800."""
    check_crcs: bool
    """Check that batches arrived undamaged. Default: True."""
    key_deserializer: Callable[[bytes], Any] | None
    """Makes keys of bytes; not called for null. Default: none."""
    value_deserializer: Callable[[bytes], Any] | None
    """Makes values of bytes; not called for null. Default: none."""


class AdminSettings(ClientSettings, total=False):
    """The settings that `Admin` has besides."""

    client_id: str
    """A name that the broker shows in its logs. Default: odradek-admin."""
    max_in_flight_requests_per_connection: int
    """Unanswered requests on one connection. Default: 100."""
    allow_auto_create_topics: bool
    """Let a request for the metadata of an unknown topic create it. Default: False."""
