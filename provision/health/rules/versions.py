"""Versions: all nodes have the same software."""

from collections import Counter
from collections.abc import Iterator
from re import findall

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule, Severity

_MINOR = ("kernel", "system")
"""Differences that a job survives."""


def check(name: str, _: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield each version of the node that is not that of most nodes, or of the newest of two."""
    known = {node: _versions(fact) for node, fact in fleet.facts.items()}
    for software, own in known[name].items():
        if not own:
            continue
        all_of = [versions[software] for versions in known.values() if versions.get(software)]
        usual = _usual(all_of)
        if own != usual:
            seen = f"{own}, alone among {len(all_of)} nodes"
            if (same := all_of.count(own)) > 1:
                seen = f"{own}, as {same} of {len(all_of)} nodes"
            severity: Severity | None = "watch" if software in _MINOR else None
            yield Deviation(f"version of {software}", f"{usual} as on the others", seen, severity)


def _versions(facts: NodeFacts) -> dict[str, str]:
    drivers = sorted({gpu.driver for gpu in facts.gpus or ()})
    return {"NVIDIA driver": " ".join(drivers), **facts.versions}


def _usual(versions: list[str]) -> str:
    """Return the most frequent version, and of several the newest."""
    counts = Counter(versions)
    return max(
        counts,
        key=lambda version: (counts[version], [int(n) for n in findall(r"\d+", version)], version),
    )


RULE = Rule(
    id="versions",
    reads="nvidia-smi, `uname -r`, /etc/os-release, EFA's installer and driver, NCCL's file name,"
    " /usr/local/cuda, `mpirun --version`",
    expects="the version of most nodes; another kernel or system is only for watching",
    severity="isolate",
    remedy="install the version of the others, or replace the node: `gpuctl heal`",
    source="docs/develop/node-health.md",
    check=check,
)
