"""A machine of a file with `hosts`: what it says about itself, and why it cannot be a node."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from config.quantities import counted

LEAST_PYTHON = (3, 9)
PROGRAMS = ("bash", "tar", "ssh", "systemd-run", "getent", "ip")
"""What gpuctl's agent calls on a node, next to Python."""

_KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
"""The best type of a host key first."""


def examination() -> str:
    """Return the script of sh that root runs on the machine."""
    return Path(__file__).with_name("examine.sh").read_text()


@dataclass(frozen=True)
class Machine:
    """What a machine says about itself; a text is empty, and a number 0, if it says nothing.

    `id` is its machine-id(5), `arrival` the address at which the login arrived, and `port` that of
    its sshd. `addresses` are its IPv4 addresses with their interfaces. `cluster` is the text of the
    file with which another cluster marks it, `another` for a mark without text.
    """

    id: str = ""
    name: str = ""
    arrival: str = ""
    port: int = 22
    clock: int = 0
    home: str = ""
    system: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    root_login: str = ""
    host_key: str = ""
    includes_settings: bool = False
    python: str = ""
    has: frozenset[str] = frozenset()
    gpus: int = 0
    gpu: str = ""
    cluster: str = ""

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
    """Return the machine as its answer to the script describes it; None for half an answer."""
    said: dict[str, list[str]] = {}
    for line in answer.splitlines():
        mark, _, rest = line.partition("gpuctl: ")
        if not mark and rest:
            kind, _, value = rest.partition(" ")
            said.setdefault(kind, []).append(value.strip())
    if "end" not in said:
        return None
    last = {kind: values[-1] for kind, values in said.items()}
    arrival = last.get("arrival", "").split()
    pairs = (text.split() for text in said.get("address", ()))
    keys = {key.partition(" ")[0]: key for key in said.get("hostkey", ())}
    return Machine(
        id=last.get("machine", ""),
        name=last.get("name", ""),
        arrival=arrival[2] if len(arrival) == 4 else "",
        port=_number(arrival[3]) if len(arrival) == 4 else 22,
        clock=_number(last.get("clock", "")),
        home=last.get("home", ""),
        system=last.get("system", ""),
        addresses={pair[1]: pair[0] for pair in pairs if len(pair) == 2},
        root_login=last.get("rootlogin", ""),
        host_key=next((keys[kind] for kind in _KEY_TYPES if kind in keys), ""),
        includes_settings="include" in said,
        python=last.get("python", ""),
        has=frozenset(said.get("has", ())),
        gpus=_number(last.get("gpus", "")),
        gpu=last.get("gpu", "").partition(" ")[2].strip(),
        cluster=last.get("cluster", ""),
    )


def problems(machine: Machine, internal: str | None, cluster_id: str) -> Iterator[str]:
    """Yield why the machine cannot be a node of the cluster with this id, and what to do."""
    lacking = [program for program in PROGRAMS if program not in machine.has]
    if lacking:
        yield f"it lacks {', '.join(lacking)}: install them"
    elif "systemd" not in machine.has:
        yield "systemd does not run there, which starts gpuctl's agent: use a machine with systemd"
    if not machine.python or _version(machine.python) < LEAST_PYTHON:
        actual = machine.python or "none"
        yield f"its python3 is {actual}, and gpuctl's agent needs 3.9: install python3"
    if not (machine.id and machine.home and machine.host_key):
        named = {
            "/etc/machine-id": machine.id,
            "home folder of root": machine.home,
            "host key of sshd": machine.host_key,
        }
        yield f"it has no {', '.join(name for name, value in named.items() if not value)}"
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
    if "writable" not in machine.has:
        yield "/var/lib cannot be written there: see whether the disk is full or read-only"
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


def _version(text: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in text.split("."))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
