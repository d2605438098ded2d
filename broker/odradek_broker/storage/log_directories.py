"""All data directories of a broker: their identity, the choice for a new partition, and directories
that are missing (L-41, L-43)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from odradek_broker.platform.seams import Files, Randomness
from odradek_broker.storage.checkpoints import (
    ABSOLUTE_HASH,
    DIRECTORY_IDS,
    META_PROPERTIES,
)
from odradek_broker.storage.errors import (
    DataDirectoryError,
    DataDirectoryFailed,
    DataDirectoryInUse,
    StorageError,
)
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.log_options import LogOptions
from odradek_broker.storage.meta_properties import MetaProperties
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import uuid_text

#: The name, in place of a path, for directories that were in use and are no longer in the settings.
_ABSENT = "(absent directory)"


class LogDirectories:
    """All data directories of a broker. `all`: the directories of the settings, in their order, and
    the metadata log's if that is another one. `metadata`: the metadata log's directory; the broker
    cannot run without it."""

    def __init__(
        self,
        paths: Sequence[str],
        metadata_path: str,
        shared: LogOptions,
        on_failed: Callable[[LogDirectory], None],
    ) -> None:
        self._files: Files = shared.files
        found = {path: LogDirectory(path, shared, on_failed) for path in (*paths, metadata_path)}
        self.all = list(found.values())
        #: The directories that partitions are in: `log.dirs`.
        self.of_partitions = [found[path] for path in paths]
        self.metadata = found[metadata_path]
        self.metadata.may_fail = False
        # The placeholder for directories that were in use and are no longer in the settings.
        self._absent = LogDirectory(_ABSENT, shared)
        self._by_path = {**found, _ABSENT: self._absent}
        self._known_ids: frozenset[bytes] = frozenset()
        #: See COORDINATOR_HASH; a directory keeps its value for life.
        self.coordinator_hash = ABSOLUTE_HASH

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.all if not directory.failure]

    @property
    def usable(self) -> bool:
        """True unless all directories for partitions have failed."""
        return any(not directory.failure for directory in self.of_partitions)

    def at(self, path: str) -> LogDirectory:
        """The directory at a path. Raises KeyError."""
        return self._by_path[path]

    # ---- start

    def take(self, cluster_id: str | None, node_id: int, randomness: Randomness) -> str:
        """Lock all directories; returns the id of their cluster. New directories get `cluster_id`,
        or a random id if it is None. A directory whose disk fails is left out, unless it is the
        metadata log's. Raises DataDirectoryInUse; raises DataDirectoryError if a directory belongs
        to another cluster or node, or if no directory is left."""
        try:
            found = self._take_all(cluster_id, node_id)
            cluster_id = self._check(found, cluster_id) or cluster_id
            cluster_id = cluster_id or uuid_text(randomness.uuid())
            self._write_meta_properties(found, cluster_id, randomness)
            if not self.usable:
                failures = "; ".join(each.failure for each in self.of_partitions)
                raise DataDirectoryError(
                    f"none of log.dirs can be used: {failures}; check the disks, or set log.dirs to"
                    " other directories"
                )
        except BaseException:
            for directory in self.all:
                directory.release()
            raise
        self._cluster_id = cluster_id
        return cluster_id

    def _take_all(
        self, cluster_id: str | None, node_id: int
    ) -> dict[LogDirectory, MetaProperties | None]:
        found: dict[LogDirectory, MetaProperties | None] = {}
        for directory in sorted(self.all, key=lambda each: each is not self.metadata):
            twin = next((e for e in found if e.absolute_path == directory.absolute_path), None)
            if twin is not None:
                raise DataDirectoryError(
                    f"{twin.path} and {directory.path} are the same directory; name it once in log.dirs"
                )
            try:
                found[directory] = directory.take(cluster_id, node_id)
            except DataDirectoryInUse:
                raise
            except DataDirectoryFailed as problem:
                if directory is self.metadata:
                    raise
                directory.failure = str(problem)
        return found

    def _check(
        self, found: Mapping[LogDirectory, MetaProperties | None], cluster_id: str | None
    ) -> str | None:
        """The id of the cluster that all directories belong to; None if all are new. Raises
        DataDirectoryError."""
        own = found[self.metadata]
        ids: dict[bytes, LogDirectory] = {}
        for directory, identity in found.items():
            if identity is None:
                continue
            if own is None:
                raise DataDirectoryError(
                    f"{directory.path} belongs to cluster {identity.cluster_id}, but the metadata log"
                    f" is looked for in {self.metadata.path}, which is new: set metadata.log.dir to the"
                    " directory that it is in, or restore that from a backup"
                )
            if identity.cluster_id != own.cluster_id:
                raise DataDirectoryError(
                    f"{directory.path} belongs to cluster {identity.cluster_id},"
                    f" {self.metadata.path} to cluster {own.cluster_id}; take one of them out of log.dirs"
                )
            if identity.directory_id is None:
                continue
            twin = ids.setdefault(identity.directory_id, directory)
            if twin is not directory:
                raise DataDirectoryError(
                    f"{twin.path} and {directory.path} have the same directory.id in {META_PROPERTIES}:"
                    " one is a copy of the other; take it out of log.dirs"
                )
        return None if own is None else own.cluster_id

    def _write_meta_properties(
        self,
        found: Mapping[LogDirectory, MetaProperties | None],
        cluster_id: str,
        randomness: Randomness,
    ) -> None:
        own = found[self.metadata]
        stored = own.directory_ids if own is not None else frozenset()
        if own is not None:
            # Every directory has the property, because the metadata log may be moved to another
            # directory.
            hashes = {identity.coordinator_hash for identity in found.values() if identity}
            self.coordinator_hash = ABSOLUTE_HASH if ABSOLUTE_HASH in hashes else ""
        for directory, identity in found.items():
            has_id = identity is not None and identity.directory_id is not None
            directory.directory_id = (
                identity.directory_id
                if identity is not None and identity.directory_id is not None
                else randomness.uuid()
            )
            if has_id or directory is self.metadata:
                continue
            try:
                directory.write_meta_properties(cluster_id, coordinator_hash=self.coordinator_hash)
            except DataDirectoryFailed as problem:
                directory.failure = str(problem)
        present = {each.directory_id for each in found if not each.failure}
        self._known_ids = stored | present
        absent = self._known_ids - present
        if absent and all(not directory.failure for directory in self.all):
            names = ", ".join(map(uuid_text, sorted(absent)))
            self._absent.failure = (
                f"log.dirs has no directory with the directory.id {names}: name it there again, or"
                " delete the topics whose partitions were in it; or take the id out of"
                f" {DIRECTORY_IDS} in {self.metadata.path}/{META_PROPERTIES}, and the next start"
                " creates these partitions again, empty"
            )
        listed = self._known_ids if len(self._known_ids) > 1 else frozenset()
        if own is None or listed != stored:
            self._write_own(cluster_id, listed)
        elif own.directory_id is None:
            # A directory of an older version can be used even if its disk is full.
            with suppress(DataDirectoryFailed):
                self._write_own(cluster_id, listed)

    def _write_own(self, cluster_id: str, listed: Collection[bytes]) -> None:
        """Write the meta.properties of the metadata log's directory. Raises DataDirectoryFailed."""
        self.metadata.write_meta_properties(cluster_id, listed, self.coordinator_hash)

    @property
    def missing(self) -> LogDirectory | None:
        """The directory that may have the partitions that were not found: one that failed at the
        start or is absent; None if no directory is missing."""
        failed = (directory for directory in self.of_partitions if directory.failure)
        return next(failed, self._absent if self._absent.failure else None)

    def found_all(self) -> None:
        """Drop the ids of absent directories if no partition is assigned to an absent directory.
        Called when the start has found every other partition."""
        absent, self._absent.failure = self._absent.failure, ""
        if absent and not self._absent.logs:
            present = {directory.directory_id for directory in self.all}
            listed = present if len(present) > 1 else set[bytes]()
            with suppress(DataDirectoryFailed):
                self._write_own(self._cluster_id, listed)
        else:
            self._absent.failure = absent

    # ---- in service

    def for_new_partition(self, metadata_topic: str) -> LogDirectory:
        """The directory with the fewest partitions; directories whose writes fail are chosen only
        if there are no others. Raises StorageError if all have failed."""
        online = [directory for directory in self.of_partitions if not directory.failure]
        if not online:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "all data directories have failed")
        candidates = [directory for directory in online if not directory.disk.problem] or online
        return min(candidates, key=lambda each: len(each.logs) - ((metadata_topic, 0) in each.logs))
