"""What a team shares of a cluster: its record, its inventory and the pinned host keys.

The cluster's folder is this machine's copy. Reads renew the copy; writes go to the bucket first,
and only if nobody else has written since this command read. Private keys are never shared. Without
a bucket nothing here does anything.
"""

import json
import re
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from config.bucket import Changed
from config.cluster.cluster_file import FORMS
from config.cluster.resolved import ID_TAG
from config.command_text import command_text
from config.errors import InputError, StateError
from config.files import write_whole
from config.foreign import Malformed, parse_foreign
from config.identifiers import CLUSTER_NAME, ClusterName, is_valid
from config.models import Value
from config.target import Target

if TYPE_CHECKING:
    from provision.aws.objects import Objects, Stored

RECORD, INVENTORY, HOST_KEYS = "cluster.json", "inventory.json", "known_hosts"
FILES = (RECORD, INVENTORY, HOST_KEYS)

MARK = "shared"
"""The file that names the backend with which a cluster's folder is shared. A record that is in the
folder and not in the bucket was removed by somebody else if the folder has this mark; without it
the cluster is this machine's alone."""

LOCK_FILE = "lock"


def objects(target: Target) -> "Objects | None":
    """Return the team's objects, or None without a bucket."""
    if target.bucket is None:
        return None
    from provision.aws.objects import Objects  # noqa: PLC0415  botocore takes 0.1 s

    return Objects(target, target.bucket)


def cluster_key(name: str, file: str, target: Target) -> str:
    """Return the key of a cluster's object; InputError for a name that no cluster can have."""
    assert target.bucket is not None
    return target.bucket.key("clusters", _checked(name), file)


def cluster_folder(name: str, target: Target) -> Path:
    """Return the path of the cluster's folder; InputError for a name that no cluster can have."""
    return target.clusters / _checked(name)


def _checked(name: str) -> str:
    if not is_valid(name, CLUSTER_NAME):
        raise InputError(f"{name!r} is no cluster's name", f"a name has {FORMS[CLUSTER_NAME]}")
    return name


@dataclass(frozen=True)
class SharedFiles:
    """The files of clusters in the target's bucket, as one command has read and written them.

    `lost_locks` are the clusters whose lock somebody else has taken over while the command held it.
    """

    target: Target
    lost_locks: set[str] = field(default_factory=set)
    _etags: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def pull(self, name: str, files: tuple[str, ...] = FILES) -> None:
        """Make this machine's copy of the files the same as the shared ones.

        Remove the folder of a cluster that somebody else has removed. Raises InputError if the
        bucket and this machine have different clusters of this name.
        """
        bucket = objects(self.target)
        if bucket is None:
            return
        place = cluster_folder(name, self.target)
        marked = _is_marked(place, self.target)
        for file in files:
            stored = _read(name, file, bucket, self.target)
            self._etags[name, file] = stored.etag if stored else None
            if stored is None:
                if marked and file == RECORD:
                    _clear(place)
                    return
                if marked:
                    (place / file).unlink(missing_ok=True)
                continue
            if file == RECORD:
                _adopt(name, stored.text, self.target, is_marked=marked)
                marked = True
            _keep(place / file, _localized(file, stored.text, place, self.target))

    def push(self, name: str, file: str, text: str) -> None:
        """Write a cluster's file to the bucket.

        Raises StateError if somebody else has written it, or has the cluster's lock now.
        """
        bucket = objects(self.target)
        if bucket is None:
            return
        if name in self.lost_locks:
            raise _refused(name, "this command lost the cluster's lock to another one")
        try:
            self._write(bucket, name, file, text)
        except Changed:
            raise _refused(
                name, f"somebody else has changed its {file} in {bucket.bucket.url}"
            ) from None
        if file == RECORD and not _is_marked(self.target.clusters / name, self.target):
            self._share_the_rest(bucket, name)

    def drop(self, name: str, files: tuple[str, ...] = FILES) -> None:
        """Remove a cluster's files from the bucket, its record last."""
        bucket = objects(self.target)
        if bucket is None:
            return
        for file in sorted(files, key=lambda file: file == RECORD):
            bucket.remove(cluster_key(name, file, self.target))
            self._etags[name, file] = None

    def _write(self, bucket: "Objects", name: str, file: str, text: str) -> None:
        key, etag = cluster_key(name, file, self.target), self._etags.get((name, file))
        self._etags[name, file] = bucket.write(key, text, etag)

    def _share_the_rest(self, bucket: "Objects", name: str) -> None:
        """Write what this machine already has of a cluster that it shares from now on."""
        place = self.target.clusters / name
        for file in (INVENTORY, HOST_KEYS):
            if (place / file).exists() and self._etags.get((name, file)) is None:
                self._write(bucket, name, file, (place / file).read_text())
        write_whole(place / MARK, f"{self.target.backend}\n")


def shared_names(target: Target) -> list[str]:
    """Return the names of the clusters in the bucket.

    A key with a name that no cluster can have is left out: names become folders of this machine.
    """
    bucket = objects(target)
    if bucket is None:
        return []
    keys = bucket.keys(bucket.bucket.key("clusters", ""))
    names = (key.split("/")[-2] for key in keys if key.endswith(f"/{RECORD}"))
    return [name for name in names if is_valid(name, CLUSTER_NAME)]


def try_bucket(target: Target) -> int:
    """Read, write and remove an object in the team's bucket; return how many clusters it has.

    Raises CloudError if the credentials do not allow one of that.
    """
    bucket = objects(target)
    assert bucket is not None
    key = bucket.bucket.key("tries", uuid.uuid4().hex)
    bucket.read(key)
    bucket.write(key, "", None)
    bucket.remove(key)
    return len(shared_names(target))


def _read(name: str, file: str, bucket: "Objects", target: Target) -> "Stored | None":
    """Return the object of a cluster, or None; InputError if it is not what it has to be.

    What else is wrong with a record or an inventory is found when this machine's copy is read.
    """
    key = cluster_key(name, file, target)
    try:
        stored = bucket.read(key)
        if stored is not None and file == RECORD:
            record = parse_foreign(_Record, stored.text)
            if record.name != name:
                raise Malformed(f"it is of cluster {record.name}")  # noqa: TRY301
        if stored is not None and file == INVENTORY:
            parse_foreign(_Inventory, stored.text)
        if stored is not None and file == HOST_KEYS and not _HOST_KEYS.fullmatch(stored.text):
            raise Malformed("a line is not `HOST TYPE KEY`")  # noqa: TRY301
    except Malformed as error:
        raise malformed(bucket.url(key), str(error), name) from None
    return stored


def malformed(where: str, why: str, name: str) -> InputError:
    """Return the error for an object or a file of a cluster that is not what it has to be."""
    return InputError(
        f"{where} of cluster '{name}' is malformed: {why}",
        "somebody else has written it: restore an earlier version, or remove it;"
        f" {command_text('gpuctl down {}', name)}"
        " then finds the cluster by its tags and removes it",
    )


class _Tags(Value):
    tags: dict[str, str]


class _Record(Value):
    """What this module reads of a record."""

    name: ClusterName
    resolved: _Tags


class _Inventory(Value):
    """What this module reads of an inventory."""

    proxy: tuple[str, ...] = ()


_HOST_KEYS = re.compile(
    r"([A-Za-z0-9\[:][A-Za-z0-9.,:\[\]-]* [a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}( [^\s]+)?\n?)*"
)
"""Lines of known_hosts without markers: `@cert-authority` would let a stranger sign keys."""


def _is_marked(place: Path, target: Target) -> bool:
    try:
        return (place / MARK).read_text().strip() == target.backend
    except FileNotFoundError:
        return False


def _adopt(name: str, text: str, target: Target, *, is_marked: bool) -> None:
    """Prepare the folder for a shared record; another cluster's files are removed from it."""
    place = cluster_folder(name, target)
    before, now = _id_of_file(place / RECORD), _id(text)
    if before is not None and before != now:
        if not is_marked:
            raise InputError(
                f"cluster '{name}' of this machine is another one than '{name}' in"
                f" {target.backend}",
                "remove this machine's without `backend` in your settings:"
                f" {command_text('gpuctl down {}', name)}",
            )
        _clear(place)
    if not is_marked or before != now:
        write_whole(place / MARK, f"{target.backend}\n")


def _id_of_file(record: Path) -> str | None:
    """Return the id of the cluster of which the folder has a record; None without a record."""
    try:
        return _id(record.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "damaged"


def _id(record: str) -> str:
    return str(json.loads(record)["resolved"]["tags"].get(ID_TAG, ""))


def _localized(file: str, text: str, place: Path, target: Target) -> str:
    """Return the file as this machine needs it: an inventory names folders and commands of it."""
    if file != INVENTORY:
        return text
    inventory = json.loads(text)
    inventory["folder"] = str(place)
    if inventory.get("proxy"):
        inventory["proxy"] = list(target.session_proxy)
    return json.dumps(inventory, indent=2)


def _keep(path: Path, text: str) -> None:
    try:
        if path.read_text() == text:
            return
    except OSError:
        pass  # it is missing, and is written now
    write_whole(path, text)


def _clear(place: Path) -> None:
    """Remove everything from the folder of a removed cluster but the lock, which may be held."""
    for path in place.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # the next pull tries again
        elif path.name != LOCK_FILE:
            path.unlink(missing_ok=True)


class Superseded(StateError):
    """The error that somebody else has changed a shared cluster, or is changing it."""


def _refused(name: str, why: str) -> Superseded:
    return Superseded(
        f"the record of cluster '{name}' was not written: {why}",
        "`gpuctl status` shows the cluster as it is now; then repeat this command",
    )
