"""Whether the fast network was used, read from NCCL's own lines as they pass.

NCCL and its plugin fall back to sockets without an error, and a run is then several times slower
than what was paid for. What they print tells it: which network each process took, how many
interfaces it found, and whether a connection reaches the GPU without the host's memory. The formats
are NCCL's (init.cc, transport/net.cc, debug.cc) and aws-ofi-nccl's, before and after 1.15
(docs/rdma.md, 2026-11-20).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.agent.journal import Message

HEAD = 300  # of a line, how much before NCCL's own words is looked at for the host

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NCCL = re.compile(r"NCCL (?:INFO|WARN) ")
_HOST = re.compile(r"([^\s:\[\]<>()]+):\d+:\d+ \[-?\d+\]")
_NETWORK = re.compile(r"Using network (\S[^\n]*)")
_CONNECTION = re.compile(r"\[(?:send|receive)\] via NET/([^/]+)/\d+(?:\(\d+\))?(/GDRDMA)?")
_PROVIDER = re.compile(
    r"NET/OFI Selected provider is ([^\s,]+)(?:, fabric is ([\w-]+))? \(found (\d+) nics?\)",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"\[\d+\]([\w.-]+):\d+/(IB|RoCE)")
_TESTED = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device")

_LIBFABRIC = re.compile(r"(AWS )?Libfabric|OFI", re.IGNORECASE)
_VERBS = re.compile(r"IB(ext(_v\d+)?)?")
_NETWORKS = {"efa": _LIBFABRIC, "infiniband": _VERBS, "roce": _VERBS}
_TITLES = {"efa": "EFA", "infiniband": "InfiniBand", "roce": "RoCE"}

_DEVICES_OF_EFA = "`fi_info -p efa` and `ls /dev/infiniband` there, in the job's container too"
_PLUGIN = "LD_LIBRARY_PATH there: it needs aws-ofi-nccl (/opt/amazon/ofi-nccl/lib)"
_DEVICES_OF_IB = "`ibv_devinfo` there, and NCCL_IB_HCA and NCCL_IB_DISABLE"

_CAUSES = (
    (re.compile(r"NET/OFI No eligible providers were found"), _DEVICES_OF_EFA),
    (re.compile(r"NET/OFI OFI fi_getinfo\(\) call failed: [^\n]*"), _DEVICES_OF_EFA),
    (re.compile(r"NET/OFI aws-ofi-nccl initialization failed"), _DEVICES_OF_EFA),
    (re.compile(r"NET/Plugin ?: Could not find: libnccl-net\S*"), _PLUGIN),
    (re.compile(r"NET/IB : No device found"), _DEVICES_OF_IB),
)
"""Lines that tell why NCCL falls back, and what to look at then; the first told counts."""


@dataclass(frozen=True)
class Finding:
    """What a line showed about a node: `level` is proof, warning or fault."""

    level: str
    rank: int
    text: str


@dataclass
class _Seen:
    """What a node's lines have shown up to now."""

    name: str
    interfaces: str = ""
    cause: str = ""
    look_at: str = ""
    proven: bool = False
    told: set[str] = field(default_factory=set)


@dataclass
class _Table:
    """The ranks of nccl-tests that one of its headers lists."""

    ranks: int = 0
    hosts: set[str] = field(default_factory=set)


class Proof:
    """Reads a run's output. `network` is the plan's NetworkPlan, `nodes` its nodes, as JSON data.

    A fault fails the run; with `verify: warn` it is a warning, with `off` nothing is looked at.
    """

    def __init__(self, network: Message, nodes: list[Message]) -> None:
        self._verify: str = network["verify"]
        self._promise: str = network["promises"]
        self._interfaces: int = network["interfaces"]
        self._gpudirect: bool = network.get("gpudirect", False)
        self._seen = [_Seen(node["name"]) for node in nodes]
        self._hosts: dict[str, int] = {}
        for rank, node in enumerate(nodes):
            address = node["private_ip"]
            for host in (node["name"], address, "ip-" + address.replace(".", "-")):
                self._hosts[host] = rank
        working = sum(node.get("processes", 0) > 0 for node in nodes)
        self._wanted_hosts = working or len(nodes)
        self._gpus = int(nodes[0].get("environment", {}).get("GPUCTL_GPUS_PER_NODE", 0))
        self._tables: dict[int, _Table] = {}
        self._tested_on: set[str] = set()
        self._tested_ranks = 0
        self._trap_told = False

    def feed(self, rank: int, stream: str, text: str) -> list[Finding]:
        """What the line, printed on node `rank`, shows for the first time; mostly nothing.

        A line may be about another node than the one that printed it: mpirun brings the output of
        all to one. NCCL writes its host in front.
        """
        if self._verify == "off":
            return []
        words = _NCCL.search(text)
        if words:
            if not self._promise:
                return []
            about = self._node(_host(text[: words.start()]), rank)
            return self._read(about, _COLOUR.sub("", text[words.end() :]).strip())
        return self._read_table(rank, text)

    def at_end(self) -> list[Finding]:
        """What only the end shows: that something never came. To be asked when all went well."""
        findings: list[Finding] = []
        if self._verify == "off":
            return findings
        for rank in tuple(self._tables):
            findings += self._end_table(rank)
        if len(self._tested_on) == 1 and self._tested_ranks > 1:
            findings += self._trap(next(iter(self._tested_on)), self._tested_ranks)
        if self._verify == "require" and self._promise:
            unproven = [rank for rank, seen in enumerate(self._seen) if not seen.proven]
            title = _TITLES[self._promise]
            if len(unproven) == len(self._seen):
                text = (
                    f"no line of NCCL shows {title}, which `verify: require` asks for; look at"
                    " whether the job uses NCCL, has NCCL_DEBUG=INFO, and prints what NCCL says"
                )
                findings.append(self._fault(0, text))
            elif unproven:
                names = ", ".join(self._seen[rank].name for rank in unproven)
                text = f"no line of NCCL shows {title} on {names}"
                findings.append(Finding("warning", unproven[0], text))
        return findings

    def _node(self, host: str, printed_on: int) -> int:
        known = self._hosts.get(host, self._hosts.get(host.partition(".")[0]))
        return printed_on if known is None else known

    def _read(self, rank: int, words: str) -> list[Finding]:
        """One line of NCCL's about node `rank`, without what stands before its own words."""
        for pattern, look_at in _CAUSES:
            cause = pattern.search(words)
            if cause and not self._seen[rank].cause:
                self._seen[rank].cause, self._seen[rank].look_at = cause[0], look_at
        network = _NETWORK.match(words)
        if network:
            return self._check_network(rank, network[1].strip(), words)
        provider = _PROVIDER.search(words)
        if provider and self._promise == "efa":
            return self._check_provider(rank, provider)
        if words.startswith("NET/IB : Using"):
            devices = _DEVICE.findall(words)
            if devices:
                self._seen[rank].interfaces = f"{len(devices)} {devices[0][1]} devices, "
        connection = _CONNECTION.search(words)
        if connection:
            return self._check_connection(rank, connection[1], bool(connection[2]), words)
        return []

    def _check_network(self, rank: int, network: str, words: str) -> list[Finding]:
        if _NETWORKS[self._promise].fullmatch(network):
            return []
        known = network == "Socket" or any(one.fullmatch(network) for one in _NETWORKS.values())
        seen, title = self._seen[rank], _TITLES[self._promise]
        if not known:
            text = f"{seen.name}: NCCL's network {network} is not known to be {title}"
            return self._once(rank, "network", Finding("warning", rank, text))
        actual = "sockets" if network == "Socket" else f"NCCL's network {network}"
        default = _DEVICES_OF_EFA if self._promise == "efa" else _DEVICES_OF_IB
        why = f", after `{seen.cause}`" if seen.cause else ""
        text = (
            f"{seen.name} uses {actual} instead of {title}: `{words}`{why};"
            f" look at {seen.look_at or default}"
        )
        return self._once(rank, "network", self._fault(rank, text))

    def _check_provider(self, rank: int, provider: re.Match[str]) -> list[Finding]:
        seen, name, found = self._seen[rank], provider[1], int(provider[3])
        if name.lower() != "efa":
            text = (
                f"{seen.name} uses libfabric's provider {name} instead of EFA: `{provider[0]}`;"
                f" look at FI_PROVIDER, and {_DEVICES_OF_EFA}"
            )
            return self._once(rank, "network", self._fault(rank, text))
        seen.interfaces = f"{found} interfaces, "
        if found >= self._interfaces:
            return []
        text = (
            f"{seen.name} uses {found} of {self._interfaces} EFA interfaces: `{provider[0]}`;"
            f" look at {_DEVICES_OF_EFA}"
        )
        return self._once(rank, "interfaces", self._fault(rank, text))

    def _check_connection(self, rank: int, network: str, direct: bool, words: str) -> list[Finding]:
        if not _NETWORKS[self._promise].fullmatch(network):
            return self._check_network(rank, network, words)
        seen, title = self._seen[rank], _TITLES[self._promise]
        if self._gpudirect and not direct:
            cause = (
                "`cat /sys/class/infiniband/*/device/p2p` there, and whether NVIDIA's driver was"
                " loaded before EFA's"
                if self._promise == "efa"
                else "whether the module nvidia_peermem is loaded there, and NCCL_NET_GDR_LEVEL"
            )
            text = (
                f"{seen.name} goes through the host's memory, without GPUDirect RDMA: `{words}`;"
                f" look at {cause}"
            )
            return self._once(rank, "gpudirect", self._fault(rank, text))
        seen.proven = True
        how = "GPUDirect RDMA" if direct else "through the host's memory"
        proof = Finding("proof", rank, f"{seen.name} uses {title}: {seen.interfaces}{how}")
        return self._once(rank, "proof", proof)

    def _read_table(self, rank: int, text: str) -> list[Finding]:
        """A line of nccl-tests' header about a rank, or the line that ends the header."""
        listed = _TESTED.search(text)
        if listed:
            if listed[1] == "0" or rank not in self._tables:
                self._tables[rank] = _Table()
            self._tables[rank].ranks += 1
            self._tables[rank].hosts.add(listed[2])
            return []
        if rank in self._tables and "#" in text:
            return self._end_table(rank)
        return []

    def _end_table(self, rank: int) -> list[Finding]:
        table = self._tables.pop(rank)
        self._tested_on |= table.hosts
        self._tested_ranks = max(self._tested_ranks, table.ranks)
        if len(table.hosts) == 1 and 0 < self._gpus < table.ranks:
            return self._trap(next(iter(table.hosts)), table.ranks)
        return []

    def _trap(self, host: str, ranks: int) -> list[Finding]:
        """All ranks of nccl-tests are on one host: no message ever crossed the network."""
        if self._trap_told or self._wanted_hosts < 2:
            return []
        self._trap_told = True
        rank = self._node(host, 0)
        text = (
            f"all {ranks} ranks of nccl-tests ran on {self._seen[rank].name} ({host}), of"
            f" {self._wanted_hosts} nodes: the launcher ignored the hostfile; look at what mpirun"
            " is given (`--hostfile $DSTACK_HOSTFILE`)"
        )
        return [self._fault(rank, text)]

    def _fault(self, rank: int, text: str) -> Finding:
        return Finding("warning" if self._verify == "warn" else "fault", rank, text)

    def _once(self, rank: int, topic: str, finding: Finding) -> list[Finding]:
        """The finding, the first time that it is made about the node."""
        if topic in self._seen[rank].told:
            return []
        self._seen[rank].told.add(topic)
        return [finding]


def _host(before: str) -> str:
    """The host in `HOST:PID:TID [gpu] `, whatever a launcher put in front; empty without one."""
    found = _HOST.findall(_COLOUR.sub("", before[-HEAD:]))
    return found[-1] if found else ""
