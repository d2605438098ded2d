"""The admin client: topics, configurations, partitions, groups and transactions of a cluster."""

from odradek_client.admin.acls import AclBinding, AclBindingFilter
from odradek_client.admin.admin import Admin
from odradek_client.admin.cluster import BrokerDescription, ClusterDescription, LogDir
from odradek_client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from odradek_client.admin.delegation_tokens import DelegationToken
from odradek_client.admin.groups import GroupDescription, GroupListing, GroupMember
from odradek_client.admin.partitions import EARLIEST, LATEST
from odradek_client.admin.producers import ProducerDescription
from odradek_client.admin.quotas import QuotaEntity, QuotaName
from odradek_client.admin.share_groups import ShareGroupOffset
from odradek_client.admin.streams_groups import StreamsGroupDescription, StreamsMember, StreamsTask
from odradek_client.admin.topics import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from odradek_client.admin.transactions import TransactionDescription, TransactionListing
from odradek_client.admin.users import (
    SCRAM_MECHANISMS,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation

__all__ = [
    "EARLIEST",
    "LATEST",
    "SCRAM_MECHANISMS",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "CreatedTopic",
    "DelegationToken",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDir",
    "NewTopic",
    "PartitionDescription",
    "PatternType",
    "ProducerDescription",
    "QuotaEntity",
    "QuotaName",
    "ResourceType",
    "ScramCredentialInfo",
    "ShareGroupOffset",
    "StreamsGroupDescription",
    "StreamsMember",
    "StreamsTask",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
