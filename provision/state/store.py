"""The clusters of a target as one command reads and writes them.

They are in a folder of this machine, and in the bucket if a team shares its clusters. A record is
written before the first resource is created and removed after the last one is gone. If a client
dies in between, `gpuctl status` still finds the cluster and `gpuctl down` removes it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from config.command_text import command_text
from config.errors import InputError, StateError
from config.files import write_whole
from config.foreign import first_mistake
from config.target import Target
from nodes.inventory import Inventory, save
from provision.state import shared
from provision.state.cluster_lock import cluster_lock, is_locked
from provision.state.record import HOSTS_RECORD, ClusterRecord, HostsRecord, unknown_cluster
from provision.state.shared import SharedFiles, cluster_folder


class ClusterStore:
    """The records, inventories, host keys and locks of a target's clusters, for one command.

    A record is read once, and again after the lock was taken: before, another command may have
    changed it. It is written to the bucket only if nobody has changed it since.
    """

    def __init__(self, target: Target) -> None:
        self._files = SharedFiles(target)
        self._records: dict[str, ClusterRecord | InputError | None] = {}

    @property
    def target(self) -> Target:
        """The target that has the clusters."""
        return self._files.target

    def at(self, target: Target) -> "ClusterStore":
        """Return this store for the same target in another region, or with other credentials."""
        store = ClusterStore(target)
        store._files, store._records = replace(self._files, target=target), self._records
        return store

    def folder(self, name: str) -> Path:
        """Return the path of the cluster's folder, which may not exist; only its owner reads it."""
        return cluster_folder(name, self.target)

    def record(self, name: str) -> ClusterRecord | None:
        """Return the cluster's record, the shared one if there is one, or None.

        Raises InputError if it cannot be read.
        """
        if name not in self._records:
            self._files.pull(name, (shared.RECORD,))
            self._records[name] = self._parse(name)
        record = self._records[name]
        if isinstance(record, InputError):
            raise record
        return record

    def _parse(self, name: str) -> ClusterRecord | InputError | None:
        """Return the record in this machine's copy; an error that says why it cannot be read."""
        path = self.folder(name) / shared.RECORD
        try:
            record = ClusterRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            return self._malformed(shared.RECORD, first_mistake(error), name)
        except OSError as error:
            unreadable = _unreadable(f"record {path}", str(error), name)
            unreadable.__cause__ = error
            return unreadable
        if not record.name == record.resolved.cluster.name == name:
            return _unreadable(f"record {path}", f"it is of cluster {record.name}", name)
        return record

    def _malformed(self, file: str, why: str, name: str) -> InputError:
        """Return the error for a cluster's file, which in a team's bucket is somebody else's."""
        bucket = self.target.bucket
        if bucket is not None:
            key = shared.cluster_key(name, file, self.target)
            return shared.malformed(f"s3://{bucket.name}/{key}", why, name)
        kind = "record" if file == shared.RECORD else "inventory"
        return _unreadable(f"{kind} {self.folder(name) / file}", why, name)

    def known_record(self, name: str) -> ClusterRecord:
        """Return the cluster's record; InputError, with the names that exist, without one."""
        record = self.record(name)
        if record is None:
            raise unknown_cluster(name, (known.name for known in self.records()))
        return record

    def find(self, name: str) -> ClusterRecord | HostsRecord | None:
        """Return the record of a cluster, also of one of hosts; None without one."""
        return self.hosts_record(name) or self.record(name)

    def known(self, name: str) -> ClusterRecord | HostsRecord:
        """Return the record of a cluster, also of one of hosts; the rest is as `known_record`."""
        return self.hosts_record(name) or self.known_record(name)

    def hosts_record(self, name: str) -> HostsRecord | None:
        """Return the record of a cluster of hosts, or None; InputError if it cannot be read."""
        path = self.folder(name) / HOSTS_RECORD
        try:
            return HostsRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            why = first_mistake(error) if isinstance(error, ValidationError) else str(error)
            raise InputError(
                f"the record {path} cannot be read: {why.splitlines()[0]}",
                "restore it, or repeat `gpuctl up FILE`",
            ) from error

    def hosts_names(self) -> tuple[str, ...]:
        """Return the names of the clusters of hosts, in their order."""
        files = self.target.clusters.glob(f"*/{HOSTS_RECORD}")
        return tuple(sorted(path.parent.name for path in files))

    def write_hosts(self, record: HostsRecord) -> None:
        """Write the record of a cluster of hosts to disk, whole or not at all."""
        path = self.folder(record.name) / HOSTS_RECORD
        write_whole(path, record.model_dump_json(indent=2))

    def last_known(self, name: str) -> ClusterRecord | None:
        """Return what is known of the cluster for its removal, also if the disk is full.

        A shared record cannot be copied to a full disk: it is then this machine's copy. A record
        that the disk does not let us read is None. Raises InputError if it is damaged.
        """
        try:
            return self.record(name)
        except StateError:
            alone = replace(self.target, backend=None)
            return ClusterStore(alone).last_known(name) if self.target.bucket else None
        except InputError as error:
            if isinstance(error.__cause__, OSError):
                return None
            raise

    def entries(self) -> dict[str, ClusterRecord | InputError]:
        """Return the record of each cluster, or the error of one that cannot be read, by name."""
        files = self.target.clusters.glob(f"*/{shared.RECORD}")
        names = {path.parent.name for path in files}.union(shared.shared_names(self.target))
        entries: dict[str, ClusterRecord | InputError] = {}
        for name in sorted(names):
            try:
                record = self.record(name)
            except InputError as error:
                entries[name] = error
            else:
                if record is not None:
                    entries[name] = record
        return entries

    def records(self) -> tuple[ClusterRecord, ...]:
        """Return the readable records of all clusters, by name."""
        entries = self.entries().values()
        return tuple(record for record in entries if isinstance(record, ClusterRecord))

    def errors(self) -> tuple[InputError, ...]:
        """Return an error for each record that cannot be read."""
        return tuple(error for error in self.entries().values() if isinstance(error, InputError))

    def write(self, record: ClusterRecord) -> None:
        """Write the record to the bucket, if there is one, then to disk, whole or not at all.

        Raises StateError if the disk is full, or if somebody else has changed the record in the
        bucket since this store read it.
        """
        text = record.model_dump_json(indent=2)
        self._files.push(record.name, shared.RECORD, text)
        write_whole(self.folder(record.name) / shared.RECORD, text)
        self._records[record.name] = record

    def forget(self, name: str) -> None:
        """Remove the cluster's record and keys from this machine, and what is shared of it.

        Raises StateError if that fails.
        """
        self._files.drop(name)
        self._records.pop(name, None)
        problems: list[OSError] = []

        def note(_: object, __: str, info: Any) -> None:
            if not isinstance(info[1], FileNotFoundError):  # the ssh broker removes its own files
                problems.append(info[1])

        place = self.folder(name)
        shutil.rmtree(place, onerror=note)
        if problems:
            raise StateError(
                f"{place} cannot be removed: {problems[0].strerror}",
                "remove it by hand: it contains a private key",
            )

    def inventory(self, name: str) -> Inventory:
        """Return the inventory of a cluster; raise InputError if it is unknown or not ready.

        Nodes that are out of service are left out: the others move up.
        """
        inventory, record = self.whole_inventory(name), self.hosts_record(name)
        if record is None or not record.out:
            return inventory
        kept = [node for node in inventory.nodes if node.name not in record.out]
        nodes = (node.model_copy(update={"rank": rank}) for rank, node in enumerate(kept))
        return inventory.model_copy(update={"nodes": tuple(nodes)})

    def whole_inventory(self, name: str) -> Inventory:
        """Return the inventory with the nodes that are out of service; the rest is the same."""
        record, folder = self.known(name), self.folder(name)
        self._files.pull(name, (shared.INVENTORY, shared.HOST_KEYS))
        try:
            inventory = Inventory.model_validate_json((folder / shared.INVENTORY).read_bytes())
        except FileNotFoundError:
            raise InputError(
                f"cluster '{name}' is not ready: its record says {record.status}",
                f"`gpuctl up` finishes it, {command_text('gpuctl down {}', name)} removes it",
            ) from None
        except ValidationError as error:
            raise self._malformed(shared.INVENTORY, first_mistake(error), name) from error
        if inventory.cluster != name or not inventory.nodes:
            of_another = inventory.cluster != name
            why = f"it is of {inventory.cluster}" if of_another else "it has no nodes"
            raise self._malformed(shared.INVENTORY, why, name)
        if self.hosts_record(name) is None and any(node.proxy for node in inventory.nodes):
            # This machine runs the command. Only `up` of a file with `hosts` writes one.
            why = "nodes that gpuctl rents have no command (`proxy`)"
            raise self._malformed(shared.INVENTORY, why, name)
        # The cluster may have been made on another machine, with another folder for its state.
        inventory = inventory.model_copy(update={"folder": folder})
        if inventory.proxy and self.target.session_proxy:
            # The recorded command may be out of date: gpuctl may have moved since `up`.
            return inventory.model_copy(update={"proxy": self.target.session_proxy})
        return inventory

    def save_inventory(self, inventory: Inventory) -> None:
        """Write the inventory as `write` does the record."""
        name = inventory.cluster
        self._files.push(name, shared.INVENTORY, inventory.model_dump_json(indent=2))
        save(inventory, self.folder(name) / shared.INVENTORY)

    def remove_inventory(self, name: str) -> None:
        """Remove the inventory of a cluster that is not ready for runs any more."""
        self._files.drop(name, (shared.INVENTORY,))
        (self.folder(name) / shared.INVENTORY).unlink(missing_ok=True)

    def fetch_host_keys(self, name: str) -> None:
        """Make the host keys that this machine has pinned the same as the shared ones."""
        self._files.pull(name, (shared.HOST_KEYS,))

    def share_host_keys(self, name: str) -> None:
        """Write the host keys that this machine has pinned to the bucket, if there is one."""
        path = self.folder(name) / shared.HOST_KEYS
        if path.exists():
            self._files.push(name, shared.HOST_KEYS, path.read_text())

    @contextmanager
    def lock(self, name: str, command: str, *, is_removal: bool = False) -> Iterator[None]:
        """Hold the cluster's lock for `command` until the block ends.

        Raises InputError with the holder's process and command if another command holds it. What
        this store knows of the cluster is read again before the block begins. For a removal
        (`is_removal`) a disk that cannot be written is no error: the lock is then held as far as
        that disk allows it.
        """
        with cluster_lock(name, command, self._files, is_removal=is_removal):
            with suppress(*((StateError,) if is_removal else ())):  # the bucket has the truth
                self._files.pull(name)
                self._records[name] = self._parse(name)
            yield

    def is_locked(self, name: str) -> bool:
        """Return whether a command is changing the cluster."""
        return is_locked(name, self._files.target)


def _unreadable(file: str, why: str, name: str) -> InputError:
    return InputError(
        f"the {file} cannot be read: {why.splitlines()[0]}",
        f"move it away; {command_text('gpuctl down {}', name)}"
        " then finds the cluster by its tags and removes it",
    )
