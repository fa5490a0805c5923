"""A cluster's record on this machine, and in the bucket if a team shares its clusters.

It is written before the first resource is created and removed after the last one is gone. If a
client dies in between, `gpuctl status` still finds the cluster and `gpuctl down` removes it.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, StringConstraints, ValidationError

from config.cluster.cluster_file import REGION, ZONE
from config.cluster.resolved import Resolved
from config.errors import InputError, StateError
from config.files import write_whole
from config.foreign import first_mistake
from config.identifiers import ClusterName
from config.models import Value
from config.target import Target
from nodes.inventory import Inventory, save
from provision.state import shared

Status = Literal["creating", "ready", "failed", "destroying"]


class Lease(Value):
    """When the machines that existed at the time `moved` power off."""

    end: AwareDatetime
    moved: AwareDatetime


class Grant(Value):
    """A colleague's public key that has access, or that loses it (`is_revoked`).

    `key` is `TYPE BASE64`, `name` its comment. `open` are the machines that have not confirmed the
    latest change.
    """

    key: str
    name: str
    since: AwareDatetime
    is_revoked: bool = False
    open: tuple[str, ...] = ()


class ClusterRecord(Value):
    """A cluster as gpuctl last planned it. `problem` is the reason of a failure, in one line.

    `lease` is None if `gpuctl extend` never moved the end of its lease. `grants` are the keys of
    colleagues; a revoked one stays until every machine has confirmed it.
    """

    name: ClusterName
    region: Annotated[str, StringConstraints(pattern=REGION)]
    zone: Annotated[str, StringConstraints(pattern=ZONE)]
    account: Annotated[str, StringConstraints(pattern=r"^[0-9]{12}$")]
    resolved: Resolved
    created: AwareDatetime
    status: Status
    problem: str = ""
    lease: Lease | None = None
    grants: tuple[Grant, ...] = ()

    @property
    def id(self) -> str:
        """The cluster's id."""
        return self.resolved.id

    def now(self, status: Status, problem: str = "") -> "ClusterRecord":
        """Return the record with another status."""
        return self.model_copy(update={"status": status, "problem": problem})


def new_record(
    resolved: Resolved, created: datetime, before: ClusterRecord | None = None
) -> ClusterRecord:
    """Return the record of a cluster that is about to be created or changed.

    It keeps lease and grants of the record `before`.
    """
    return ClusterRecord(
        name=resolved.cluster.name,
        region=resolved.region,
        zone=resolved.zone,
        account=resolved.account,
        resolved=resolved,
        created=created,
        status="creating",
        lease=before.lease if before else None,
        grants=before.grants if before else (),
    )


def lease_end(record: ClusterRecord, launches: Iterable[datetime]) -> datetime | None:
    """Return when the first machine powers off; None without a lease or without machines.

    `launches` is when each machine was launched. One that is younger than the last extension has
    its own end, `lifetime.max` after its launch.
    """
    lifetime, lease = record.resolved.cluster.lifetime, record.lease
    if lifetime is None:
        return None
    own = timedelta(seconds=lifetime.max)
    return min(
        (
            lease.end if lease is not None and launched < lease.moved else launched + own
            for launched in launches
        ),
        default=None,
    )


def folder(name: str, target: Target) -> Path:
    """Return the path of the cluster's folder, which may not exist; only its owner can read it."""
    return shared.cluster_folder(name, target)


def write(record: ClusterRecord, target: Target) -> None:
    """Write the record to the bucket, if there is one, then to disk, whole or not at all.

    Raises StateError if the disk is full, or if somebody else has changed the record in the bucket
    since this process read it.
    """
    text = record.model_dump_json(indent=2)
    shared.push(record.name, shared.RECORD, text, target)
    write_whole(folder(record.name, target) / shared.RECORD, text)


def read(name: str, target: Target) -> ClusterRecord | None:
    """Return the cluster's record, the shared one if there is one, or None.

    Raises InputError if it cannot be read.
    """
    shared.pull(name, target, (shared.RECORD,))
    path = folder(name, target) / shared.RECORD
    try:
        record = ClusterRecord.model_validate_json(path.read_bytes())
        if not record.name == record.resolved.cluster.name == name:
            raise ValueError(f"it is of cluster {record.name}")  # noqa: TRY301
        return record  # noqa: TRY300
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise _malformed(shared.RECORD, first_mistake(error), name, target) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"the record {path} cannot be read: {str(error).splitlines()[0]}",
            f"move it away; `gpuctl down {name}` then finds the cluster by its tags and removes it",
        ) from error


def _malformed(file: str, why: str, name: str, target: Target) -> InputError:
    """Return the error for a file of the cluster, which in a team's bucket is somebody else's."""
    if target.bucket is not None:
        key = shared.cluster_key(name, file, target)
        return shared.malformed(f"s3://{target.bucket.name}/{key}", why, name)
    path = folder(name, target) / file
    return InputError(
        f"the {'record' if file == shared.RECORD else 'inventory'} {path} cannot be read: {why}",
        f"move it away; `gpuctl down {name}` then finds the cluster by its tags and removes it",
    )


def last_known(name: str, target: Target) -> ClusterRecord | None:
    """Return what is known of the cluster for its removal, also if this machine's disk is full.

    A shared record cannot be copied to a full disk: it is then this machine's copy. A record that
    the disk does not let us read is None. Raises InputError if it is damaged.
    """
    try:
        return read(name, target)
    except StateError:
        return last_known(name, replace(target, backend=None)) if target.bucket else None
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            return None
        raise


def records(target: Target) -> tuple[ClusterRecord, ...]:
    """Return the readable records of all clusters of this target, by name; see `record_errors`."""
    found = (_try(name, target) for name in _names(target))
    return tuple(record for record in found if isinstance(record, ClusterRecord))


def record_errors(target: Target) -> tuple[InputError, ...]:
    """Return an error for each record that cannot be read, so that others can still be listed."""
    found = (_try(name, target) for name in _names(target))
    return tuple(error for error in found if isinstance(error, InputError))


def damaged_names(target: Target) -> frozenset[str]:
    """Return the names of the clusters whose record cannot be read."""
    return frozenset(name for name in _names(target) if isinstance(_try(name, target), InputError))


def _names(target: Target) -> list[str]:
    here = {path.parent.name for path in target.clusters.glob(f"*/{shared.RECORD}")}
    return sorted(here.union(shared.shared_names(target)))


def _try(name: str, target: Target) -> ClusterRecord | InputError | None:
    try:
        return read(name, target)
    except InputError as error:
        return error


def forget(name: str, target: Target) -> None:
    """Remove the cluster's record and keys from this machine, and what is shared of it.

    Raises StateError if that fails.
    """
    shared.drop(name, target)
    problems: list[OSError] = []

    def note(_: object, __: str, info: Any) -> None:
        if not isinstance(info[1], FileNotFoundError):  # the ssh broker removes its own files
            problems.append(info[1])

    place = folder(name, target)
    shutil.rmtree(place, onerror=note)
    if problems:
        raise StateError(
            f"{place} cannot be removed: {problems[0].strerror}",
            "remove it by hand: it contains a private key",
        )


def known_record(name: str, target: Target) -> ClusterRecord:
    """Return the cluster's record; raise InputError, with the names that exist, without one."""
    record = read(name, target)
    if record is None:
        raise unknown_cluster(name, (known.name for known in records(target)))
    return record


def load_inventory(name: str, target: Target) -> Inventory:
    """Return the inventory of a cluster; raise InputError if it is unknown or not ready."""
    record = known_record(name, target)
    shared.pull(name, target, (shared.INVENTORY, shared.HOST_KEYS))
    try:
        text = (folder(name, target) / shared.INVENTORY).read_bytes()
        inventory = Inventory.model_validate_json(text)
    except FileNotFoundError:
        raise InputError(
            f"cluster '{name}' is not ready: its record says {record.status}",
            f"`gpuctl up` finishes it, `gpuctl down {name}` removes it",
        ) from None
    except ValidationError as error:
        raise _malformed(shared.INVENTORY, first_mistake(error), name, target) from error
    if inventory.cluster != name or not inventory.nodes:
        why = "it has no nodes" if inventory.cluster == name else f"it is of {inventory.cluster}"
        raise _malformed(shared.INVENTORY, why, name, target)
    # The cluster may have been made on another machine, with another folder for its state.
    inventory = inventory.model_copy(update={"folder": folder(name, target)})
    if inventory.proxy and target.session_proxy:
        # The recorded command may be out of date: gpuctl may have moved since `up`.
        return inventory.model_copy(update={"proxy": target.session_proxy})
    return inventory


def save_inventory(inventory: Inventory, target: Target) -> None:
    """Write the inventory as `write` does the record."""
    shared.push(inventory.cluster, shared.INVENTORY, inventory.model_dump_json(indent=2), target)
    save(inventory, folder(inventory.cluster, target) / shared.INVENTORY)


def remove_inventory(name: str, target: Target) -> None:
    """Remove the inventory of a cluster that is not ready for runs any more."""
    shared.drop(name, target, (shared.INVENTORY,))
    (folder(name, target) / shared.INVENTORY).unlink(missing_ok=True)


def share_host_keys(name: str, target: Target) -> None:
    """Write the host keys that this machine has pinned to the bucket, if there is one."""
    path = folder(name, target) / shared.HOST_KEYS
    if path.exists():
        shared.push(name, shared.HOST_KEYS, path.read_text(), target)


def unknown_cluster(name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that no cluster has; it lists the names that exist."""
    names = ", ".join(sorted(known))
    return InputError(
        f"there is no cluster '{name}'",
        f"there are: {names}" if names else "`gpuctl up FILE` creates one",
    )
