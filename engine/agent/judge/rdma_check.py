"""The proof that a run used the fast network, from the lines that NCCL prints.

NCCL and its plugin fall back to sockets without an error, and then a run is several times slower.
Their lines show the network of each process, the number of its interfaces, and whether connections
use GPUDirect RDMA. The formats are those of NCCL (init.cc, transport/net.cc, net_ib, debug.cc of
2.12 to 2.30) and of aws-ofi-nccl before and after 1.15 (docs/look-up/network.md, 2026-11-22).

Processes that write into one pipe can tear each other's lines, because stdio writes 4096 bytes at a
time. A line that may be torn never causes a fault: patterns of a fallback match a line to its end,
and lines without `/GDRDMA` are counted until a tear cannot explain them.

A process that has only communicators within its node sends nothing over the network that it chose
(tensor parallelism of vLLM or SGLang). So a wrong network is a fault when NCCL's `nNodes` or its
connections show that the process reaches other nodes (`nNodes` since 2.20, src/init.cc).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.agent.judge.failures import Finding, hosts_of
from engine.contract.node_plan import NodePlan
from engine.contract.plan import NetworkPlan

HEAD = 300  # characters before NCCL's text in which to search the host
CERTAIN = 4  # connections without GPUDirect RDMA of one process: more than one tear explains

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NCCL = re.compile(r"NCCL (?:INFO|WARN) ")
_HOST = re.compile(r"([^\s:\[\]<>()]+):(\d{1,18}):\d+ \[-?\d+\]")
_NETWORK = re.compile(r"Using network (\S[^\n]*)")
_WAY = r"via NET/([^/]+)/(\d{1,18})(?:\(\d+\))?"
_CONNECTION = re.compile(
    r"(?:(?:Channel|Ring) \d+(?:/\d+)? : \d+(?:\[\w+\])? -> \d+(?:\[\w+\])? )?"
    rf"\[(?:send|receive)\] {_WAY}(/GDRDMA(?:\(PCI\))?)?(?:/flush=\w+)?(?:/Shared)?"
)
_WITHIN = re.compile(
    r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\] via"
    r" (?:(P2P/\w+)|SHM|direct shared memory).*"
)
_NODES = re.compile(
    r"comm 0x[0-9a-f]+ rank \d+ nRanks \d+ nNodes (\d{1,18}) localRanks \d+ localRank \d+"
    r" MNNVL \d+"
)
_RANKS = re.compile(r"\bcomm 0x[0-9a-f]+ rank \d+ nranks (\d{1,18}) cudaDev \d+ ")
_DIRECT = re.compile(rf"{_WAY}/GDRDMA")
_PROVIDER = re.compile(
    r"NET/OFI Selected provider is ([^\s,]+)(?:, fabric is ([\w-]+))?"
    r"(?: \(found (\d{1,18}) nics?\))?$",
    re.IGNORECASE,
)
_PROVIDERS = re.compile(
    r"(efa|tcp|udp|sockets|verbs|shm|sm2|net|psm[23]?|opx|cxi|gni|usnic|ucx|lpp|mlx)(;\w+)*"
)
_DEVICE = re.compile(r"\[(\d{1,18})\](?:=\{\[\d+\] )?[\w.-]+:[\d:]+/(IB|RoCE)")
_TESTED = re.compile(
    r"(?:^|[#\s])\s*Rank\s+(\d{1,18})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device"
)

_LIBFABRIC = re.compile(r"(AWS )?Libfabric|OFI", re.IGNORECASE)
_VERBS = re.compile(r"IB(ext(_v\d+)?)?|NCCL RDMA Plugin( v\d+)?")
_NETWORKS = {"efa": _LIBFABRIC, "infiniband": _VERBS, "roce": _VERBS}
_TITLES = {"efa": "EFA", "infiniband": "InfiniBand", "roce": "RoCE"}
_LAYERS = {"infiniband": "IB", "roce": "RoCE"}
_OTHERS = {"IB": "InfiniBand", "RoCE": "RoCE"}

_DEVICES_OF_EFA = "`fi_info -p efa` and `ls /dev/infiniband` there, in the job's container too"
_PLUGIN = "LD_LIBRARY_PATH there: it needs aws-ofi-nccl (/opt/amazon/ofi-nccl/lib)"
_DEVICES_OF_IB = "`ibv_devinfo` there, and NCCL_IB_HCA and NCCL_IB_DISABLE"

_CAUSES = (
    (re.compile(r"NET/OFI No eligible providers were found"), _DEVICES_OF_EFA),
    (re.compile(r"NET/OFI OFI fi_getinfo\(\) call failed: [^\n]*"), _DEVICES_OF_EFA),
    (re.compile(r"NET/OFI aws-ofi-nccl initialization failed"), _DEVICES_OF_EFA),
    (
        re.compile(
            r"NET/Plugin ?: (?:Could not find:(?: [\w-]+(?:\.so)?)+|No plugin found(?: \(\S+\))?"
            r"|Plugin load \(\S+\) returned \d+)"
        ),
        _PLUGIN,
    ),
    (re.compile(r"NET/IB : No device found"), _DEVICES_OF_IB),
)
"""Lines with the cause of a fallback, and what to check then; the first line counts."""


_TOPICS = (
    (" ranks of nccl-tests ran on ", "one host"),
    (" EFA interfaces: `", "interfaces"),
    (" uses GPUDirect RDMA", "direct"),
    (" through the host's memory", "gpudirect"),
    (", according to its devices", "layer"),
    (" instead of ", "network"),
    (" is not known to be ", "network"),
)
"""Words of each finding, and the topic of which a node has one finding; others are proofs."""


@dataclass
class _Seen:
    """The state of a node according to its lines so far.

    `provider` is libfabric's. `layers` are link layers by device number. `direct` and `indirect`
    count connections with and without GPUDirect RDMA by process. `reported` are topics of findings.
    `network` is the last that NCCL chose; `between` and `within` are the kinds of connections to
    other nodes and within the node.
    """

    name: str
    provider: str = ""
    interfaces: int = 0
    few: str = ""
    layers: dict[int, str] = field(default_factory=dict)
    unknown: str = ""
    cause: str = ""
    to_check: str = ""
    proven: bool = False
    direct: dict[str, int] = field(default_factory=dict)
    indirect: dict[str, int] = field(default_factory=dict)
    example: str = ""
    reporters: set[str] = field(default_factory=set)  # processes that print too few interfaces
    reported: set[str] = field(default_factory=set)
    network: str = ""
    between: set[str] = field(default_factory=set)
    within: set[str] = field(default_factory=set)


@dataclass
class _Process:
    """A process of NCCL. `spans` is whether a communicator of it has ranks on other nodes.

    `suspect` is what is wrong with its network, if it uses it. `within` means that it has
    connections within its node.
    """

    rank: int
    spans: bool | None = None
    suspect: str = ""
    within: bool = False


@dataclass
class _Table:
    """The ranks that one header of nccl-tests lists."""

    ranks: int = 0
    hosts: set[str] = field(default_factory=set)


class Proof:
    """A reader of a run's output. `network` and `nodes` are the plan's.

    A fault fails the run. With `verify: warn` it is a warning; with `off` nothing is checked.
    """

    def __init__(self, network: NetworkPlan, nodes: Sequence[NodePlan]) -> None:
        self._verify = network.verify
        self._promise = network.promises
        self._interfaces = network.interfaces
        self._gpudirect = network.gpudirect
        self._seen = [_Seen(node.name) for node in nodes]
        self._hosts = hosts_of(nodes)
        self._knows_hosts = False
        self._processes: dict[str, _Process] = {}
        self._writers: dict[int, set[str]] = {}  # processes that print to a node's output
        self._printing = 0
        self._orphans = 0  # `/GDRDMA` of lines whose beginning was torn off
        working = sum(node.processes > 0 for node in nodes)
        self._wanted_hosts = working or len(nodes)
        self._gpus = int(nodes[0].environment.get("GPUCTL_GPUS_PER_NODE", 0))
        self._tables: dict[int, _Table] = {}
        self._tested_on: set[str] = set()
        self._tested_ranks = 0
        self._one_host_reported = False

    def feed(self, rank: int, text: str) -> list[Finding]:
        """Return new findings from the line, which node `rank` printed; mostly none.

        The line may be about another node: mpirun prints the output of all nodes on one. NCCL
        writes its host before its text.
        """
        if "/GDRDMA" in text:
            self._orphans += text.count("/GDRDMA") - len(_DIRECT.findall(text))
        words = None
        for words in _NCCL.finditer(text):  # noqa: B007  the last match: a tear is before it
            pass
        if words is None:
            return self._read_table(rank, text) if self._verify != "off" else []
        about, process = self._about(text[: words.start()], rank)
        if about is None:
            return []
        line = _COLOUR.sub("", text[words.end() :]).strip()
        self._observe(about, process, line)
        if not self._promise or self._verify == "off":
            return []
        self._printing = rank
        self._writers.setdefault(rank, set()).add(process)
        return self._suspicion(process) + self._read(about, process, line)

    def _observe(self, rank: int, process: str, words: str) -> None:
        """Note which networks and connections NCCL has, whatever the run must prove."""
        seen = self._seen[rank]
        of = self._processes.setdefault(process, _Process(rank))
        nodes, ranks = _NODES.fullmatch(words), _RANKS.search(words)
        if nodes:
            of.spans = of.spans or int(nodes[1]) > 1
        elif ranks and 0 < self._gpus < int(ranks[1]):
            of.spans = True
        network, within = _NETWORK.match(words), _WITHIN.fullmatch(words)
        connection = _CONNECTION.fullmatch(words)
        if network:
            seen.network = network[1].strip()
        elif within:
            of.within = True
            seen.within.add(within[1] or "shared memory")
        elif connection:
            (seen.within if of.spans is False else seen.between).add(f"NET/{connection[1]}")

    def observations(self) -> list[Finding]:
        """Return the connections of each node about which nothing else was said."""
        return [
            Finding("proof", rank, f"{seen.name} uses {text}")
            for rank, seen in enumerate(self._seen)
            if not seen.reported and (text := _connections(seen))
        ]

    def final_findings(self) -> list[Finding]:
        """Return findings about missing lines; call it at the end of a run that succeeded."""
        findings: list[Finding] = []
        if self._verify == "off":
            return findings
        for rank in tuple(self._tables):
            findings += self._end_table(rank)
        if len(self._tested_on) == 1 and self._tested_ranks > 1:
            findings += self._report_one_host(next(iter(self._tested_on)), self._tested_ranks)
        if self._promise:
            for process in self._processes:
                findings += self._suspicion(process, is_end=True)
            for rank in range(len(self._seen)):
                findings += self._end_node(rank)
            findings += self._end_gpudirect()
        if self._verify == "require" and self._promise:
            findings += self._require()
        return findings

    def restore(self, finding: Finding) -> None:
        """Take over a finding of an earlier supervisor: it is not made again."""
        seen = self._seen[finding.rank]
        topic = next((topic for words, topic in _TOPICS if words in finding.text), "proof")
        seen.reported.add(topic)
        self._one_host_reported |= topic == "one host"
        seen.proven |= (topic, finding.level) == ("proof", "proof")

    def _require(self) -> list[Finding]:
        unproven = [seen.name for seen in self._seen if not seen.proven]
        title = _TITLES[self._promise]
        if not unproven:
            return []
        where = f" on {', '.join(unproven)}" if len(unproven) < len(self._seen) else ""
        text = (
            f"no line of NCCL shows {title}{where}, which `verify: require` needs; check that"
            " the job uses NCCL there, has NCCL_DEBUG=INFO, and prints the output of NCCL"
        )
        return [self._fault(self._rank(unproven[0]), text)]

    def _rank(self, name: str) -> int:
        return next(rank for rank, seen in enumerate(self._seen) if seen.name == name)

    def _about(self, before: str, printed_on: int) -> tuple[int | None, str]:
        """Return node and process of NCCL's prefix; None for the node if the prefix is torn.

        An unknown host may be a container's name: then the node is the one that printed the line,
        unless other lines have names of the run's hosts.
        """
        matches = _HOST.findall(_COLOUR.sub("", before[-HEAD:]))
        host, process = matches[-1] if matches else ("", "")
        rank = self._hosts.get(host, self._hosts.get(host.partition(".")[0]))
        if rank is None and host:  # text of a torn line may precede the host
            ends = [name for name in self._hosts if host.endswith(name)]
            rank = self._hosts[max(ends, key=len)] if ends else None
        if rank is not None:
            self._knows_hosts = True
            return rank, f"{rank}:{process}"
        return (None if self._knows_hosts else printed_on), f"{host}:{process}"

    def _read(self, rank: int, process: str, words: str) -> list[Finding]:
        """Return findings from a line of NCCL about node `rank`, without its prefix."""
        seen = self._seen[rank]
        for pattern, to_check in _CAUSES:
            cause = pattern.search(words)
            if cause and not seen.cause:
                seen.cause, seen.to_check = cause[0], to_check
        network = _NETWORK.match(words)
        if network:
            return self._check_network(rank, process, network[1].strip(), words)
        provider = _PROVIDER.match(words)
        if provider and self._promise == "efa":
            return self._check_provider(rank, process, provider)
        if words.startswith("NET/IB : Using"):
            seen.layers.update((int(number), layer) for number, layer in _DEVICE.findall(words))
        connection = _CONNECTION.fullmatch(words)
        if connection:
            return self._check_connection(rank, process, connection, words)
        return []

    def _suspicion(self, process: str, *, is_end: bool = False) -> list[Finding]:
        """Return the fault of a process that uses a wrong network to reach other nodes.

        At the end that is also assumed of a process that has said nothing about its connections.
        """
        of = self._processes[process]
        if not of.suspect or not (of.spans or (is_end and of.spans is None and not of.within)):
            return []
        return self._once(of.rank, "network", self._fault(of.rank, of.suspect))

    def _check_network(self, rank: int, process: str, network: str, words: str) -> list[Finding]:
        seen, title = self._seen[rank], _TITLES[self._promise]
        if _NETWORKS[self._promise].fullmatch(network):
            return self._prove(rank) if seen.provider == "efa" or seen.layers else []
        if network != "Socket" and not any(
            pattern.fullmatch(network) for pattern in _NETWORKS.values()
        ):
            seen.unknown = network
            return []
        actual = "sockets" if network == "Socket" else f"NCCL's network {network}"
        default = _DEVICES_OF_EFA if self._promise == "efa" else _DEVICES_OF_IB
        why = f", after `{seen.cause}`" if seen.cause else ""
        text = (
            f"{seen.name} uses {actual} instead of {title}: `{words}`{why};"
            f" check {seen.to_check or default}"
        )
        return self._suspect(process, text)

    def _suspect(self, process: str, text: str) -> list[Finding]:
        of = self._processes[process]
        of.suspect = of.suspect or text
        return self._suspicion(process)

    def _check_provider(self, rank: int, process: str, provider: re.Match[str]) -> list[Finding]:
        seen, name, count = self._seen[rank], provider[1].lower(), provider[3]
        if not _PROVIDERS.fullmatch(name):
            return []
        if seen.provider in ("", "efa"):  # if processes differ, keep one that is not EFA
            seen.provider = name
        if name != "efa":
            text = (
                f"{seen.name} uses libfabric's provider {provider[1]} instead of EFA:"
                f" `{provider[0]}`; check FI_PROVIDER, and {_DEVICES_OF_EFA}"
            )
            return self._suspect(process, text)
        if count is None:
            return []
        if int(count) >= self._interfaces:
            seen.interfaces = int(count)
            return []
        seen.reporters.add(process)
        alone = len(self._writers[self._printing]) == 1
        seen.few = (
            f"{seen.name} uses {count} of {self._interfaces} EFA interfaces: `{provider[0]}`;"
            f" check {_DEVICES_OF_EFA}"
        )
        return self._few(rank) if alone or len(seen.reporters) > 1 else []

    def _few(self, rank: int) -> list[Finding]:
        """Return the fault that the node uses too few interfaces.

        It needs the only process that prints there, two processes, or no process that disagrees.
        """
        return self._once(rank, "interfaces", self._fault(rank, self._seen[rank].few))

    def _check_connection(
        self, rank: int, process: str, connection: re.Match[str], words: str
    ) -> list[Finding]:
        network, device, direct = connection.groups()
        of = self._processes[process]
        if of.spans is False:
            return []
        if not _NETWORKS[self._promise].fullmatch(network):
            of.spans = True
            return self._check_network(rank, process, network, words)
        if of.suspect:
            of.spans = True
            return self._suspicion(process)
        seen = self._seen[rank]
        findings = self._prove(rank, int(device))
        if direct and seen.proven:
            seen.direct[process] = seen.direct.get(process, 0) + 1
            text = f"{seen.name} uses GPUDirect RDMA"
            return findings + self._once(rank, "direct", Finding("proof", rank, text))
        if direct:
            return findings
        seen.indirect[process] = seen.indirect.get(process, 0) + 1
        seen.example = seen.example or words
        if seen.indirect[process] >= CERTAIN and not seen.direct and not self._orphans:
            findings += self._report_indirect(rank)
        return findings

    def _prove(self, rank: int, device: int | None = None) -> list[Finding]:
        """Return the proof for the node, unless its provider or its devices contradict it."""
        seen, title = self._seen[rank], _TITLES[self._promise]
        if "network" in seen.reported:
            return []
        if self._promise == "efa":
            if seen.provider != "efa" and (seen.provider or not self._interfaces):
                return []
            count = f": {seen.interfaces} interfaces" if seen.interfaces else ""
        else:
            layers = set(seen.layers.values())
            layer = seen.layers.get(-1 if device is None else device)
            layer = layer or (layers.pop() if len(layers) == 1 else None)
            if layer not in (None, _LAYERS[self._promise]):
                text = (
                    f"{seen.name} uses {_OTHERS[str(layer)]}, not {title}, according to its devices"
                )
                return self._once(rank, "layer", Finding("warning", rank, text))
            if layer is None and device is None:
                return []
            count = f": {len(seen.layers)} {layer} devices" if layer else ""
        seen.proven = True
        return self._once(rank, "proof", Finding("proof", rank, f"{seen.name} uses {title}{count}"))

    def _end_node(self, rank: int) -> list[Finding]:
        seen, findings = self._seen[rank], []
        if seen.few and not seen.interfaces:
            findings += self._few(rank)
        if seen.provider == "efa":
            findings += self._prove(rank)
        if seen.unknown and not seen.proven:
            text = (
                f"{seen.name}: NCCL's network {seen.unknown} is not known to be"
                f" {_TITLES[self._promise]}"
            )
            findings += self._once(rank, "network", Finding("warning", rank, text))
        return findings

    def _end_gpudirect(self) -> list[Finding]:
        """Return findings about connections without GPUDirect RDMA, minus those that were torn."""
        findings: list[Finding] = []
        counts = [sum(seen.indirect.values()) for seen in self._seen]
        if sum(counts) > self._orphans:
            most, torn = max(counts), any(len(writer) > 1 for writer in self._writers.values())
            for rank, count in enumerate(counts):
                # Few of them next to many direct ones may be lines of two nodes torn into one.
                few = torn and self._seen[rank].direct and count < CERTAIN
                if not few and (count > self._orphans or count == most):
                    findings += self._report_indirect(rank)
        return findings

    def _report_indirect(self, rank: int) -> list[Finding]:
        seen = self._seen[rank]
        if "network" in seen.reported:
            return []
        text = f"{seen.name} transfers data through the host's memory, without GPUDirect RDMA"
        if not self._gpudirect:
            return self._once(rank, "gpudirect", Finding("proof", rank, text))
        cause = (
            "`cat /sys/class/infiniband/*/device/p2p` there, and whether NVIDIA's driver was"
            " loaded before EFA's"
            if self._promise == "efa"
            else "whether the module nvidia_peermem is loaded there, and NCCL_NET_GDR_LEVEL"
        )
        fault = self._fault(rank, f"{text}: `{seen.example}`; check {cause}")
        return self._once(rank, "gpudirect", fault)

    def _read_table(self, rank: int, text: str) -> list[Finding]:
        """Return findings from a line of nccl-tests' header about a rank, or the line after it."""
        listed = _TESTED.search(text)
        if listed:
            if listed[1] == "0" or rank not in self._tables:
                self._tables[rank] = _Table()
            self._tables[rank].ranks += 1
            self._tables[rank].hosts.add(listed[2])
            return []
        if rank in self._tables and ("#" in text or "busbw" in text):
            return self._end_table(rank)
        return []

    def _end_table(self, rank: int) -> list[Finding]:
        table = self._tables.pop(rank)
        self._tested_on |= table.hosts
        self._tested_ranks = max(self._tested_ranks, table.ranks)
        if len(table.hosts) == 1 and 0 < self._gpus < table.ranks:
            return self._report_one_host(next(iter(table.hosts)), table.ranks)
        return []

    def _report_one_host(self, host: str, ranks: int) -> list[Finding]:
        """Return the fault that all ranks of nccl-tests ran on one host, without any network."""
        if self._one_host_reported or self._wanted_hosts < 2:
            return []
        self._one_host_reported = True
        rank = self._hosts.get(host, self._hosts.get(host.partition(".")[0], 0))
        text = (
            f"all {ranks} ranks of nccl-tests ran on {self._seen[rank].name} ({host}), of"
            f" {self._wanted_hosts} nodes: the launcher ignored the hostfile; check the"
            " options of mpirun (`--hostfile $DSTACK_HOSTFILE`)"
        )
        return [self._fault(rank, text)]

    def _fault(self, rank: int, text: str) -> Finding:
        return Finding("warning" if self._verify == "warn" else "fault", rank, text)

    def _once(self, rank: int, topic: str, finding: Finding) -> list[Finding]:
        """Return the finding the first time that its topic occurs for the node."""
        if topic in self._seen[rank].reported:
            return []
        self._seen[rank].reported.add(topic)
        return [finding]


def _connections(seen: _Seen) -> str:
    """Return what a node's lines show of its connections; empty if they show nothing."""
    between = ", ".join(
        "sockets (NET/Socket)" if way == "NET/Socket" else way for way in sorted(seen.between)
    )
    within = f"{' and '.join(sorted(seen.within))} within the node" if seen.within else ""
    if between or within:
        return f"{between}, and {within}" if between and within else between or within
    return f"NCCL's network {seen.network}, without a connection" if seen.network else ""
