"""meta.properties: the cluster, node and directory id of a data directory (L-43)."""

from __future__ import annotations

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import (
    ABSOLUTE_HASH,
    COORDINATOR_HASH,
    DIRECTORY_IDS,
    META_PROPERTIES,
    CorruptCheckpoint,
    decode_meta_properties,
    decode_uuid,
    read_small_file,
)
from odradek_broker.storage.errors import DataDirectoryError, DataDirectoryFailed
from odradek_protocol.lazy_tuple import NamedTuple


class MetaProperties(NamedTuple):
    """The content of meta.properties. `directory_id` is None if an older version wrote the file;
    `directory_ids`: the ids of all directories of the broker, if it has several.
    `coordinator_hash`: ABSOLUTE_HASH, or empty in a directory of an early version."""

    cluster_id: str
    directory_id: bytes | None
    directory_ids: frozenset[bytes]
    coordinator_hash: str = ""


#: What to do about a damaged meta.properties: without one a directory gets new ids.
_REMEDY = (
    "restore it from a backup; or, if the directory is this broker's only one, remove the file, and"
    " the next start writes another with new ids"
)


def read_meta_properties(
    files: Files, data_dir: str, cluster_id: str | None, node_id: int
) -> MetaProperties | None:
    """The meta.properties of a data directory; None if there is no such file yet.

    A directory keeps its cluster and its node for life. Raises DataDirectoryError if they are not
    `cluster_id` (None: any) and `node_id`, or if the file cannot be parsed; DataDirectoryFailed if
    the file cannot be read.
    """
    path = f"{data_dir}/{META_PROPERTIES}"
    try:
        text = read_small_file(files, path)
    except CorruptCheckpoint as problem:
        raise DataDirectoryError(f"{problem}; {_REMEDY}") from problem
    except OSError as problem:
        raise DataDirectoryFailed(
            f"{path} cannot be read: {problem}; check the disk and the owner of the file"
        ) from problem
    if text is None:
        return None
    properties = decode_meta_properties(text)
    found = properties.get("cluster.id", "")
    if not found or properties.get("version") not in ("0", "1"):
        raise DataDirectoryError(
            f"{path} names no cluster.id, or has a version other than 0 and 1; {_REMEDY}"
        )
    if cluster_id is not None and found != cluster_id:
        raise DataDirectoryError(
            f"{data_dir} belongs to cluster {found}, not {cluster_id}; choose another --data-dir"
        )
    owner = properties.get("node.id", properties.get("broker.id", str(node_id)))
    if owner != str(node_id):
        raise DataDirectoryError(
            f"{data_dir} belongs to node {owner}, this one is node {node_id}; set node.id"
            " accordingly or choose another --data-dir"
        )
    coordinator_hash = properties.get(COORDINATOR_HASH, "")
    if coordinator_hash not in ("", ABSOLUTE_HASH):
        raise DataDirectoryError(
            f"{path} has {COORDINATOR_HASH}={coordinator_hash}, which this version does not know;"
            " start with the version that made the directory, or a later one"
        )
    try:
        own = properties.get("directory.id")
        others = properties.get(DIRECTORY_IDS, "")
        return MetaProperties(
            found,
            None if own is None else decode_uuid(own),
            frozenset(decode_uuid(text) for text in others.split(",") if text),
            coordinator_hash,
        )
    except CorruptCheckpoint as problem:
        raise DataDirectoryError(f"{path} is damaged: {problem}; {_REMEDY}") from problem
