"""What runs use, as tables with small bars and as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cli.render.text_table import bar
from config.folded_names import fold
from config.quantities import elapsed, money, size

if TYPE_CHECKING:
    from cli.output import Output
    from engine.analysis.metrics.live import LiveRun
    from engine.analysis.metrics.summary import NodeSummary
    from engine.analysis.metrics.usage import GpuUsage, IdleCost, Usage
    from operations.usage import ClusterUsage

DROP = ("TEMP", "DISK", "POWER", "NETWORK", "MEMORY", "EFA", "CPU", "GPU MEMORY")
"""The columns that a narrow terminal lacks, the first of them first."""

DROP_OF_GPUS = ("TEMP", "POWER", "NVLINK", "ECC", "MEMORY")
"""The same of the table with a line for each GPU."""

DROP_OF_PAST = (
    "disk",
    "network",
    "hottest",
    "power",
    "cores used",
    "memory peak",
    "EFA",
    "ECC errors",
    "GPU hours idle",
    "GPU memory peak",
)
"""The same of the table of a run that is over."""

STALE_S = 20.0
"""A sample that is older is marked with its age: the node may be lost."""


def document(clusters: "Sequence[ClusterUsage]") -> list[dict[str, Any]]:
    """Return what the clusters' runs use, for JSON."""
    return [
        {
            "cluster": cluster.inventory.cluster,
            "runs": [
                {
                    "run_id": run.run_id,
                    "nodes": [
                        {"node": run.nodes[usage.rank], **usage.model_dump(mode="json")}
                        for usage in run.usages
                    ],
                }
                for run in cluster.runs
            ],
            "idle": [idle.model_dump(mode="json") for idle in cluster.idle()],
        }
        for cluster in clusters
    ]


def lines(clusters: "Sequence[ClusterUsage]", with_gpus: bool, out: "Output") -> list[str]:
    """Return the tables of all runs, then the GPUs that are idle."""
    text: list[str] = []
    for cluster in clusters:
        if not cluster.runs:
            text.append(f"No run on cluster {cluster.inventory.cluster} has sent a sample.")
        for run in cluster.runs:
            text.append(f"Run {run.run_id} on cluster {cluster.inventory.cluster}")
            text += _run(run, out)
            if with_gpus:
                text += ["", *_gpus(run, out)]
        text += [f"! {idle_text(idle)}" for idle in cluster.idle()]
    return text


def idle_text(idle: "IdleCost") -> str:
    """Return a node's idle GPUs as one line, with what they cost."""
    numbers = fold(map(str, idle.gpus)).strip("[]")
    gpus = f"GPU {numbers} has" if len(idle.gpus) == 1 else f"GPUs {numbers} have"
    cost = "" if idle.cost_usd is None else f", which cost about {money(idle.cost_usd)}"
    return f"{idle.node}: {gpus} been idle for {elapsed(idle.seconds)}{cost}"


def _run(run: "LiveRun", out: "Output") -> list[str]:
    head = ("NODE", "CPU", "MEMORY", "DISK", "NETWORK", "EFA", "GPU", "GPU MEMORY", "POWER", "TEMP")
    rows = [_node(run.nodes[usage.rank], usage) for usage in run.usages]
    return out.table(*known_columns(head, rows), drop=DROP)


def known_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Return the table without the columns of which nothing is known."""
    kept = [n for n in range(len(head)) if any(row[n] != "-" for row in rows)]
    return [head[n] for n in kept], [[row[n] for n in kept] for row in rows]


def _node(name: str, usage: "Usage") -> tuple[str, ...]:
    gpus = usage.gpus
    age = f" ({elapsed(usage.age_s)} ago)" if usage.age_s > STALE_S else ""
    return (
        f"{name}{age}",
        bar(_part(usage.cpu, usage.cores)),
        bar(_part(usage.memory_bytes, usage.memory_total_bytes)),
        _both(usage.disk_read_bytes_s, usage.disk_written_bytes_s),
        _both(usage.network_received_bytes_s, usage.network_sent_bytes_s),
        _both(usage.rdma_received_bytes_s, usage.rdma_sent_bytes_s),
        bar(_part(_mean(gpu.percent for gpu in gpus), 100)),
        bar(_mean(_part(gpu.memory_bytes, gpu.memory_total_bytes) for gpu in gpus)),
        _figure(_sum(gpu.watts for gpu in gpus), "W"),
        _figure(max((g.celsius for g in gpus if g.celsius is not None), default=None), "°C"),
    )


def _gpus(run: "LiveRun", out: "Output") -> list[str]:
    head = ("NODE", "GPU", "USED", "MEMORY", "POWER", "TEMP", "ECC", "NVLINK")
    rows = [(run.nodes[usage.rank], *_gpu(gpu)) for usage in run.usages for gpu in usage.gpus]
    sources = dict.fromkeys(name for usage in run.usages for name in usage.gpu_sources)
    source = f"Source: {', '.join(sources)}" if sources else "No node has reported a GPU."
    return [*out.table(*known_columns(head, rows), right=("GPU",), drop=DROP_OF_GPUS), source]


def _gpu(gpu: "GpuUsage") -> tuple[str, ...]:
    errors = "-" if gpu.ecc_uncorrected is None else f"{gpu.ecc_uncorrected:.0f}"
    return (
        str(gpu.gpu),
        bar(_part(gpu.percent, 100)),
        bar(_part(gpu.memory_bytes, gpu.memory_total_bytes)),
        _figure(gpu.watts, "W"),
        _figure(gpu.celsius, "°C"),
        errors,
        _both(gpu.nvlink_received_bytes_s, gpu.nvlink_sent_bytes_s),
    )


def rate(amount: float | None) -> str:
    """Return bytes a second as `1.2G`, `34M`, `0`; `-` if unknown."""
    if amount is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if amount < 999.5:
            return f"{amount:.0f}{unit}" if amount >= 9.95 or not unit else f"{amount:.1f}{unit}"
        amount /= 1000
    return f"{amount:.1f}T"


def _both(first: float | None, second: float | None) -> str:
    """Return two rates as `1.2G / 340M`: read and written, or received and sent."""
    return "-" if first is None and second is None else f"{rate(first)} / {rate(second)}"


def _part(amount: float | None, total: float | None) -> float | None:
    return None if amount is None or not total else amount / total


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def record_lines(run_id: str, nodes: "Sequence[NodeSummary]", out: "Output") -> Iterator[str]:
    """Return the means and peaks of a run that is over."""
    yield f"Run {run_id} is over. Means and peaks by node:"
    head, rows = record_table(nodes)
    yield from out.table(*known_columns(head, rows), right=head[1:], drop=DROP_OF_PAST)


def record_table(
    nodes: "Sequence[NodeSummary]", names: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows of the means and peaks; a node without a name has its rank."""

    def bytes_of(amount: float | None) -> str:
        return "-" if amount is None else size(round(amount))

    head = (
        "node",
        "cores used",
        "memory peak",
        "disk",
        "network",
        "EFA",
        "GPU used",
        "GPU memory peak",
        "power",
        "hottest",
        "ECC errors",
        "GPU hours idle",
    )
    rows = []
    for node in nodes:
        gpus = node.gpus
        peak = max(
            (g.memory_peak_bytes for g in gpus if g.memory_peak_bytes is not None), default=None
        )
        hottest = max((g.celsius_peak for g in gpus if g.celsius_peak is not None), default=None)
        used = _mean(gpu.percent for gpu in gpus)
        errors = _sum(gpu.ecc_uncorrected for gpu in gpus)
        rows.append(
            (
                names[node.rank] if node.rank < len(names) else f"number {node.rank}",
                "-" if node.cpu is None else f"{node.cpu:.1f} of {node.cores}",
                *map(bytes_of, (node.memory_peak_bytes, node.disk_bytes)),
                *map(bytes_of, (node.network_bytes, node.rdma_bytes)),
                "-" if used is None else f"{used:.0f} %",
                bytes_of(peak),
                _figure(_sum(gpu.watts for gpu in gpus), "W"),
                _figure(hottest, "°C"),
                "-" if errors is None else f"{errors:.0f}",
                f"{sum(gpu.idle_s for gpu in gpus) / 3600:.1f}" if gpus else "-",
            )
        )
    return head, rows
