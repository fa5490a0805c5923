"""`gpuctl exec` against pdsh, clush and ansible: first connections, and kept ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overheads.row import TIMES, Row, best_of
from benchmarks.overheads.site import Site, require
from config.folded_names import fold
from nodes.dial import end as end_broker

WANTED = 1.0  # ahead of them


@dataclass(frozen=True)
class Peer:
    """A tool that runs a command on many nodes over OpenSSH, by a given ssh_config."""

    name: str
    command: Callable[[Site, Path], Sequence[str]]
    environment: Callable[[Path], dict[str, str]] = lambda _: {}

    def work(self, site: Site, kept: bool) -> Callable[[], float]:
        """Return the work: `true` on every node."""
        config = site.ssh_config(kept)
        command, environment = self.command(site, config), self.environment(config)
        return lambda: site.run(command, **environment)


def _names(site: Site) -> str:
    return fold(node.name for node in site.inventory.nodes)


def _pdsh(site: Site, config: Path) -> Sequence[str]:
    del config
    count, user = len(site.inventory.nodes), site.inventory.user
    return [
        "pdsh",
        "-S",
        "-R",
        "ssh",
        "-f",
        str(count),
        "-t",
        "60",
        "-l",
        user,
        "-w",
        _names(site),
        "true",
    ]


def _clush(site: Site, config: Path) -> Sequence[str]:
    count = len(site.inventory.nodes)
    options = ["-S", "-b", "-f", str(count), "-o", f"-F {config}"]
    return ["clush", *options, "-w", _names(site), "true"]


def _ansible(site: Site, config: Path) -> Sequence[str]:
    del config
    hosts = site.folder / f"{site.inventory.cluster}.hosts"
    hosts.write_text("".join(f"{node.name}\n" for node in site.inventory.nodes))
    # raw: no module is shipped, which is the quickest way that ansible has.
    count = len(site.inventory.nodes)
    return ["ansible", "all", "-i", str(hosts), "-f", str(count), "-m", "raw", "-a", "true"]


PDSH = Peer("pdsh", _pdsh, lambda config: {"PDSH_SSH_ARGS_APPEND": f"-F {config}"})
CLUSH = Peer("clush", _clush)
ANSIBLE = Peer("ansible -m raw", _ansible, lambda config: {"ANSIBLE_SSH_ARGS": f"-F {config}"})


def rows(site: Site) -> list[Row]:
    """Measure `exec CLUSTER -- true`: the first one (`exec-8-first-…`), and a later one."""
    require("pdsh", "pdsh")
    require("clush", "clustershell")
    require("ansible", "ansible-core")
    command = site.gpuctl("exec", site.inventory.cluster, "--", "true")
    size = len(site.inventory.nodes)

    def contest(label: str, ours: Callable[[], float], peers: Sequence[Peer], kept: bool) -> None:
        mine, *theirs = best_of(TIMES, ours, *(peer.work(site, kept) for peer in peers))
        for peer, seconds in zip(peers, theirs, strict=True):
            name = f"exec-{size}-{label}-{peer.name.partition(' ')[0]}"
            found.append(Row(name, mine, seconds, _told(peer, kept), WANTED))

    found: list[Row] = []
    contest("first", lambda: _run_first(site, command), (PDSH, CLUSH), kept=False)
    for peer in (PDSH, CLUSH, ANSIBLE):
        peer.work(site, kept=True)()  # from here on its connections are there
    contest("kept", lambda: site.run(command), (PDSH, CLUSH, ANSIBLE), kept=True)
    return found


def _run_first(site: Site, command: Sequence[str]) -> float:
    """Run the command with no connection kept from an earlier one."""
    end_broker(str(site.inventory.folder))
    return site.run(command)


def _told(peer: Peer, kept: bool) -> str:
    return f"{peer.name}, connections kept" if kept else peer.name
