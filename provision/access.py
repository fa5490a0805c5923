"""Who may log in to a cluster's machines: the keys of colleagues, given and taken away.

The cluster's record has them, and `up` installs them on every machine that it makes. What the
record says is changed first, then the machines: a key that is on a machine is always in the record.
"""

import asyncio
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from config.command_text import command_text
from config.errors import GpuctlError, InputError, Interrupted, NodeError
from config.event_loop import run_in_loop
from config.folded_names import fold
from config.folders import user_path
from config.target import Target
from nodes.answers import Completed
from nodes.identity import has_cluster_key
from nodes.inventory import Inventory
from nodes.keys import (
    PublicKey,
    fingerprint,
    is_key_text,
    parse_public_key,
    read_public_key,
)
from nodes.login import users_public_keys
from nodes.ssh import connect
from provision.setup.machines import (
    BASTION,
    Answers,
    failures,
    machine_names,
    on_all,
    raise_failures,
)
from provision.setup.nodes_key import GRANTED, NodesKey, nodes_key
from provision.state.record import (
    ClusterRecord,
    Grant,
)
from provision.state.store import ClusterStore

_SCRIPT = Path(__file__).parent / "setup" / "authorized_keys.sh"


@dataclass(frozen=True)
class Access:
    """The keys that were given or taken away, on which machines, and the connections that ended.

    On `unchecked` machines other connections of the keys may still be open: sshd's log, which shows
    the key of each connection, cannot be read there.
    """

    keys: tuple[PublicKey, ...]
    machines: tuple[str, ...]
    ended: int = 0
    unchecked: tuple[str, ...] = ()


def members(name: str, target: Target) -> tuple[PublicKey, tuple[Grant, ...]]:
    """Return gpuctl's own key of the cluster, and the keys of colleagues."""
    record = ClusterStore(target).known_record(name)
    return _trusted(record.resolved.public_key), record.grants


def grant(name: str, text: str, target: Target) -> Access:
    """Give the keys access to all machines of the cluster.

    `text` is the path of a public key, the key itself, or the name or fingerprint of a key that was
    granted before, to any cluster. Raises InputError before any machine is changed, NodeError with
    the machines that the keys have not reached; they then get them with the next grant or `up`.
    """
    store = ClusterStore(target)
    store.known_record(name)  # else the lock would make a folder for an unknown cluster
    with store.lock(name, "gpuctl grant"):
        record, inventory = store.known_record(name), store.inventory(name)
        known = [
            entry for other in store.records() for entry in other.grants if not entry.is_revoked
        ]
        keys = _keys(text, known, command_text("gpuctl grant {} ~/.ssh/id_ed25519.pub", name))
        for key in keys:
            if key.key in _own_keys(record, store):
                raise InputError(
                    f"{key.name} is gpuctl's own key of cluster {name}, which has access",
                    "name the public key of a colleague",
                )
        machines = machine_names(inventory)
        changed = with_grants(record.grants, keys, machines, datetime.now(UTC))
        _, answers = _change(record, changed, inventory, store)
        again = _repeat("grant", name, keys, answers)
        raise_failures(answers, f"{_names(keys)} has no access there", again)
    return Access(keys, tuple(machines))


def revoke(name: str, text: str, target: Target) -> Access:
    """Take the keys away from all machines, and end the connections that are open with them.

    `text` is as for `grant`. Raises InputError for a key that was not granted, NodeError with the
    machines that may still have the keys; new machines do not get them.
    """
    store = ClusterStore(target)
    store.known_record(name)  # else the lock would make a folder for an unknown cluster
    with store.lock(name, "gpuctl revoke"):
        record, inventory = store.known_record(name), store.inventory(name)
        keys = _revocable(record, text, store)
        machines = machine_names(inventory)
        changed = with_revocations(record.grants, keys, machines)
        _, answers = _change(record, changed, inventory, store)
        again = _repeat("revoke", name, keys, answers)
        raise_failures(answers, f"{_names(keys)} may still have access there", again)
    ended = {name: _ended(answer) for name, answer in answers.items()}
    unchecked = tuple(name for name, (_, is_complete) in ended.items() if not is_complete)
    return Access(keys, tuple(machines), sum(count for count, _ in ended.values()), unchecked)


def install_grants(
    inventory: Inventory, record: ClusterRecord, store: ClusterStore
) -> ClusterRecord:
    """Let all machines have the granted keys and no revoked ones; return the record after it.

    Raises NodeError with the machines that have not confirmed it.
    """
    # Without any, a bastion that was made anew may still have one that was revoked meanwhile.
    if not record.grants and GRANTED not in record.resolved.bastion_user_data:
        return record
    machines = machine_names(inventory)
    pending = tuple(entry.model_copy(update={"open": tuple(machines)}) for entry in record.grants)
    record, answers = _change(record, pending, inventory, store)
    again = f"see {command_text('gpuctl grant {}', record.name)}, and repeat `gpuctl up`"
    raise_failures(answers, "the keys of colleagues are not as granted", again)
    return record


def check_new_machines(
    name: str, store: ClusterStore, ending: Collection[str], entrance: str = ""
) -> NodesKey | None:
    """Raise InputError if this machine could not log in to new machines of the cluster.

    Those have gpuctl's own key in their user data. Nodes also have the key of the nodes, which a
    node gives to a colleague's machine, and a bastion has those of colleagues. `ending` are the
    nodes that the new ones replace, or also `bastion` if it will be made anew, and `entrance` is
    its user data then. Returns the key that a node gave, for `up`: later no node may give it. None
    if gpuctl's own key is here, or if no node is new.
    """
    if has_cluster_key(store.folder(name)):
        return None
    public = store.known_record(name).resolved.nodes_public_key
    if BASTION in ending and not any(key in entrance.split() for key in users_public_keys()):
        raise InputError(
            f"cluster {name} would get a new bastion, which accepts none of your ssh keys",
            "ask a member to run"
            f" {command_text('gpuctl grant {} yourkey.pub', name)}, or run this command on the"
            " machine that created the cluster",
        )
    if not set(ending) - {BASTION}:
        return None
    inventory = store.inventory(name)
    staying = tuple(node for node in inventory.nodes if node.name not in ending)
    return nodes_key(inventory.model_copy(update={"nodes": staying}), public)


def with_grants(
    grants: Sequence[Grant], keys: Iterable[PublicKey], machines: Sequence[str], now: datetime
) -> tuple[Grant, ...]:
    """Return the grants with these keys, which no machine has confirmed yet.

    A key that has access keeps its name and the time since when it has it.
    """
    by_key = {entry.key: entry for entry in grants}
    for key in keys:
        before = by_key.get(key.key)
        if before is None or before.is_revoked:
            before = Grant(key=key.key, name=key.name, since=now)
        by_key[key.key] = before.model_copy(update={"open": tuple(machines)})
    return tuple(by_key.values())


def with_revocations(
    grants: Sequence[Grant], keys: Iterable[PublicKey], machines: Sequence[str]
) -> tuple[Grant, ...]:
    """Return the grants, those of the keys revoked, which no machine has confirmed yet."""
    gone, update = {key.key for key in keys}, {"is_revoked": True, "open": tuple(machines)}
    return tuple(
        entry.model_copy(update=update) if entry.key in gone else entry for entry in grants
    )


def confirmed(grants: Sequence[Grant], failed: Collection[str]) -> tuple[Grant, ...]:
    """Return the grants after all machines but the failed ones have got them.

    A revoked one that no machine has any more is dropped.
    """
    left = (
        entry.model_copy(update={"open": tuple(name for name in entry.open if name in failed)})
        for entry in grants
    )
    return tuple(entry for entry in left if entry.open or not entry.is_revoked)


def machine_script(grants: Sequence[Grant]) -> str:
    """Return the script that gives a machine's user these keys, and takes the revoked ones away.

    A second call changes nothing.
    """
    revoked = [entry.key for entry in grants if entry.is_revoked]
    values = {
        "granted": "\n".join(
            f"{entry.key} {entry.name} {GRANTED}" for entry in grants if not entry.is_revoked
        ),
        "gone": " ".join(key.split()[1] for key in revoked),
        "fingerprints": " ".join(fingerprint(key) for key in revoked),
    }
    assigned = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return assigned + _SCRIPT.read_text(encoding="utf-8")


def _change(
    record: ClusterRecord, grants: tuple[Grant, ...], inventory: Inventory, store: ClusterStore
) -> tuple[ClusterRecord, Answers]:
    """Record the grants, carry them out on all machines, and record who has confirmed them."""
    record = record.model_copy(update={"grants": grants})
    store.write(record)
    answers = run_in_loop(_ask_all(inventory, machine_script(grants)))
    grants = confirmed(grants, failures(answers))
    record = record.model_copy(update={"grants": grants})
    store.write(record)
    return record, answers


async def _ask_all(inventory: Inventory, script: str) -> Answers:
    try:
        async with connect(inventory) as connections:
            return await on_all(connections, inventory, script, script)
    except NodeError as error:  # without the bastion no machine is reached
        return dict.fromkeys(machine_names(inventory), error)
    except asyncio.CancelledError:  # Ctrl-C
        raise Interrupted(
            f"interrupted: not all machines of {inventory.cluster} have confirmed the change",
            "repeat it;"
            f" {command_text('gpuctl grant {}', inventory.cluster)} shows which ones have not",
        ) from None


def _ended(answer: Completed | GpuctlError) -> tuple[int, bool]:
    """Return how many connections a machine has ended, and whether these are all."""
    text = answer.stdout if isinstance(answer, Completed) else ""
    match = re.search(r"^(\d+)( incomplete)?$", text, re.MULTILINE)
    return (int(match[1]), not match[2]) if match else (0, False)


def _revocable(record: ClusterRecord, text: str, store: ClusterStore) -> tuple[PublicKey, ...]:
    """Return the granted keys that `text` names; InputError if it names another one."""
    own = _own_keys(record, store)
    known = {name for entry in record.grants for name in (entry.name, fingerprint(entry.key))}
    names = {name for key in own.values() for name in (key.name, key.fingerprint)}
    if text in names - known:
        raise _own_key(record.name)
    keys = _keys(text, record.grants, f"{command_text('gpuctl grant {}', record.name)} lists them")
    for key in keys:
        if key.key in own:
            raise _own_key(record.name)
        if key.key not in {entry.key for entry in record.grants}:
            raise InputError(
                f"{key.name} ({key.fingerprint}) was not granted to cluster {record.name}",
                f"{command_text('gpuctl grant {}', record.name)} lists the keys that were",
            )
    return keys


def _keys(text: str, known: Iterable[Grant], hint: str) -> tuple[PublicKey, ...]:
    """Return the keys that a path, a key's text, a known name or a fingerprint names."""
    if is_key_text(text):
        return (parse_public_key(text, "the text"),)
    named = {
        entry.key: entry for entry in known if text and text in (entry.name, fingerprint(entry.key))
    }
    if named:
        return tuple(_trusted(f"{entry.key} {entry.name}") for entry in named.values())
    path = user_path(text)
    if path.exists() or "/" in text or text.endswith(".pub"):
        return (read_public_key(path),)
    raise InputError(f"there is no file '{text}', and no key of that name was granted", hint)


def _own_keys(record: ClusterRecord, store: ClusterStore) -> dict[str, PublicKey]:
    """Return gpuctl's own keys of the cluster, the nodes' one too, by type and base64 text."""
    resolved = record.resolved
    lines = [resolved.public_key, resolved.nodes_public_key]
    for path in store.folder(record.name).glob("*_ed25519.pub"):
        lines.append(path.read_text(encoding="utf-8"))
    return {key.key: key for key in map(_trusted, lines)}


def _trusted(line: str) -> PublicKey:
    """Return the key of a line that gpuctl has written."""
    kind, blob, *comment = line.split(maxsplit=2)
    return PublicKey(kind, blob, "".join(comment).strip())


def _own_key(name: str) -> InputError:
    return InputError(
        f"that is gpuctl's own key of cluster {name}, which cannot be revoked",
        f"{command_text('gpuctl down {}', name)} removes the cluster",
    )


def _names(keys: Iterable[PublicKey]) -> str:
    return ", ".join(dict.fromkeys(key.name for key in keys))


def _repeat(command: str, name: str, keys: Sequence[PublicKey], answers: Answers) -> str:
    """Return what to do for the machines that failed, and which ones are done."""
    done = answers.keys() - failures(answers).keys()
    key = keys[0].name if len(keys) > 1 else keys[0].fingerprint
    again = f"repeat {command_text(f'gpuctl {command} {{}} {{}}', name, key)}"
    return f"{again}; {fold(done)} done" if done else f"{again}; no machine answered"
