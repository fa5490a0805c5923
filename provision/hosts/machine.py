"""A machine of a file with `hosts`: what it says about itself, and why it cannot be a node."""

import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from config.errors import InputError
from config.foreign import Malformed, first_mistake
from config.identifiers import InstanceId, SshHost, SshUser
from config.models import Value
from config.quantities import counted
from nodes.inventory import Port, Word
from nodes.keys import parse_public_key

LEAST_PYTHON = (3, 9)
PROGRAMS = ("bash", "tar", "ssh", "getent", "ip")
"""What gpuctl's agent calls on a node, next to Python."""

_KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
"""The best type of a host key first."""


def examination(shared: str) -> str:
    """Return the script of sh, for root or another user of the machine.

    `shared` is the folder that all machines share, empty for none.
    """
    script = Path(__file__).with_name("examine.sh").read_text()
    return f"first=read shared={shlex.quote(shared)}\n{script}"


_HomePath = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_.][A-Za-z0-9_./-]{0,255})?$")]
_Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{0,200}$")]


class Machine(Value):
    """What a machine says about itself; a text is empty, and a number 0, if it says nothing.

    A job may be root there, so each value has a type: most of them are written on the other nodes.
    `id` is its machine-id(5), `user` the one that the script was and `home` that user's folder,
    `arrival` the address at which the login arrived, and `port` that of its sshd. `addresses` are
    its IPv4 addresses with their interfaces. `host_key` is `TYPE BASE64`. `mounts` are folders of
    file systems that other machines may have too, with their kind and source. `cluster` is the text
    of the file with which another cluster marks it, `another` for a mark without text; `nodes` are
    the addresses of that cluster's nodes.
    """

    id: InstanceId = ""
    name: _Line = ""
    arrival: SshHost = ""
    port: Port = 22
    user: SshUser = "root"
    home: _HomePath = ""
    system: _Line = ""
    addresses: dict[SshHost, _Line] = Field(default={})
    root_login: Word = ""
    host_key: str = ""
    includes_settings: bool = False
    python: Annotated[str, StringConstraints(pattern=r"^([0-9]{1,4}\.[0-9]{1,4})?$")] = ""
    has: frozenset[str] = frozenset()
    mounts: dict[_Line, _Line] = Field(default={})
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu: _Line = ""
    cluster: _Line = ""
    nodes: Annotated[str, StringConstraints(pattern=r"^[0-9. ]{0,8192}$")] = ""

    @property
    def is_root(self) -> bool:
        """Return whether gpuctl may act as root there."""
        return self.user == "root"

    def internal(self, chosen: str | None) -> str:
        """Return the address that other nodes use: the chosen one, else that of the login."""
        return chosen or self.arrival

    @property
    def text(self) -> str:
        """Return system, Python and GPUs in words."""
        gpus = counted(self.gpus, "GPU") if self.gpus else "no GPU"
        model = f" ({self.gpu})" if self.gpus and self.gpu else ""
        return f"{self.system or 'unknown system'}, Python {self.python}, {gpus}{model}"


def read(answer: str) -> Machine | None:
    """Return the machine as its answer to the script describes it; None for half an answer.

    Raises Malformed for a value that no machine has.
    """
    said: dict[str, list[str]] = {}
    for line in answer.splitlines():
        mark, _, rest = line.partition("gpuctl: ")
        if not mark and rest:
            kind, _, value = rest.partition(" ")
            said.setdefault(kind, []).append(value.strip())
    if "end" not in said:
        return None
    last = {kind: values[-1] for kind, values in said.items() if values[-1]}
    arrival = last.get("arrival", "").split()
    pairs = (text.split() for text in said.get("address", ()))
    fields: dict[str, Any] = {
        "id": last.get("machine"),
        "arrival": arrival[2] if len(arrival) == 4 else None,
        "port": arrival[3] if len(arrival) == 4 else None,
        "addresses": {pair[1]: pair[0] for pair in pairs if len(pair) == 2},
        "root_login": last.get("rootlogin"),
        "host_key": _best_key(said.get("hostkey", ())),
        "includes_settings": "include" in said,
        "has": said.get("has", ()),
        "mounts": dict(text.partition(" ")[::2] for text in said.get("mount", ())),
        "gpu": last.get("gpu", "").partition(" ")[2].strip(),
    }
    plain = ("name", "user", "home", "system", "python", "gpus", "cluster", "nodes")
    fields |= {kind: last.get(kind) for kind in plain}
    try:
        return Machine.model_validate({k: v for k, v in fields.items() if v is not None})
    except ValidationError as error:
        raise Malformed(first_mistake(error)) from None


def _best_key(texts: Iterable[str]) -> str:
    """Return the key of the best type among those that are whole; empty without one."""
    keys = {}
    for text in texts:
        with suppress(InputError):  # half a key is none: then the machine has no key of this type
            key = parse_public_key(" ".join(text.split()[:2]), "")
            keys[key.type] = key.key
    return next((keys[kind] for kind in _KEY_TYPES if kind in keys), "")


def problems(
    machine: Machine, internal: str | None, cluster_id: str, shared: str = ""
) -> Iterator[str]:
    """Yield why the machine cannot be a node of the cluster with this id, and what to do."""
    if shared and "shared" not in machine.has:
        yield f"{shared}, which is `shared`, is no folder there in which {machine.user} may write"
    yield from _problems_of_programs(machine)
    if not (machine.id and machine.home and machine.host_key):
        named = {
            "/etc/machine-id": machine.id,
            f"home folder of {machine.user}": machine.home,
            "host key of sshd": machine.host_key,
        }
        yield f"it has no {', '.join(name for name, value in named.items() if not value)}"
    if machine.is_root:
        yield from _problems_of_root(machine)
    folder = "/var/lib" if machine.is_root else "/var/tmp"  # noqa: S108  mktemp
    if "writable" not in machine.has:
        yield f"{folder} cannot be written there: see whether the disk is full or read-only"
    elif "executable" not in machine.has:
        yield f"no program can be started in {folder} there: mount it without `noexec`"
    address = machine.internal(internal)
    if address not in machine.addresses:
        has = ", ".join(sorted(set(machine.addresses) - {"127.0.0.1"})) or "none"
        yield f"the other nodes' address for it is {address}, and it has {has}: set `internal`"
    if machine.cluster and machine.cluster.split()[0] != cluster_id:
        owner = machine.cluster.partition(" ")[2]
        yield (
            f"it is a node of {f'cluster {owner}' if owner else 'another cluster of gpuctl'}:"
            " `gpuctl down` there removes what that wrote"
        )


def _problems_of_programs(machine: Machine) -> Iterator[str]:
    """Yield what is wrong with the programs that gpuctl calls there."""
    if "input" not in machine.has:
        yield (
            "a start-up file of the shell there (~/.bashrc) reads what gpuctl sends to commands:"
            " let it read in interactive shells alone"
        )
    lacking = [program for program in PROGRAMS if program not in machine.has]
    if lacking:
        yield f"it lacks {', '.join(lacking)}: install them"
    if not machine.python or _version(machine.python) < LEAST_PYTHON:
        actual = machine.python or "none"
        yield f"its python3 is {actual}, and gpuctl's agent needs 3.9: install python3"


def _problems_of_root(machine: Machine) -> Iterator[str]:
    """Yield why root cannot go from node to node there."""
    if machine.root_login in ("no", "forced-commands-only"):
        yield (
            f"its sshd has `PermitRootLogin {machine.root_login}`, and nodes log in to each other"
            " as root: write prohibit-password there"
        )
    if not machine.includes_settings:
        yield (
            "its /etc/ssh/ssh_config does not include ssh_config.d: write `Include"
            " /etc/ssh/ssh_config.d/*.conf` as its first line"
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
