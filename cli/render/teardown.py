"""The removal of a cluster as text and JSON."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from config.quantities import counted, elapsed, money

if TYPE_CHECKING:
    from cli.output import Output
    from operations.release import Losses, Teardown, Verification


@dataclass(frozen=True)
class RemovalPlan:
    """What a removal ends: the runs, by their ids, and the cluster with its data.

    `losses` is None if AWS has nothing of the cluster. `outputs` has a line for each run that is
    over and whose outputs have not come back.
    """

    runs: tuple[str, ...]
    losses: "Losses | None"
    outputs: tuple[str, ...] = ()


def loss_lines(losses: "Losses | None", outputs: tuple[str, ...] = ()) -> list[str]:
    """Return the plan of a removal: the cluster, the data that is lost, what stays.

    `outputs` are lines about outputs that have not come back: all there is without `losses`.
    """
    lost_outputs = [f"  lost: {line}" for line in outputs]
    if losses is None:
        return lost_outputs
    machines = ", ".join(f"{number} x {name}" for name, number in losses.machines.items())
    usd = losses.spent_usd
    spent = "cost unknown" if usd is None else f"about {money(usd)} so far"
    return [
        f"Cluster {losses.name} ({losses.id or 'without id'}) in {losses.region},"
        f" owner {losses.owner}: {machines or 'no machine'},"
        f" up {elapsed(losses.seconds_up)}, {spent}",
        *(f"  lost: {line}" for line in losses.data),
        *lost_outputs,
        *(f"  stays: {line}" for line in losses.stays),
        "  stays: logs, results and outputs of its runs on this machine",
    ]


def show_teardown(teardown: "Teardown", out: "Output", plan: RemovalPlan | None = None) -> None:
    """Print the number of removed resources and the cluster's cost; as JSON with a plan, if any."""
    document = asdict(teardown) | ({"plan": asdict(plan)} if plan else {})
    out.show(document, [teardown_text(teardown)])
    _warn(teardown, out)


def show_verified(
    teardown: "Teardown", verification: "Verification", plan: RemovalPlan, out: "Output"
) -> None:
    """Print what AWS lists of the removed cluster; as JSON with removal and plan, as text has."""
    document = {
        **asdict(teardown),
        "plan": asdict(plan),
        "verified": asdict(verification),
    }
    out.show(document, [_verification_text(verification)])


def note_teardown(teardown: "Teardown", out: "Output") -> None:
    """Print the removal as a note, before it is verified."""
    out.note(teardown_text(teardown))
    _warn(teardown, out)


def teardown_text(teardown: "Teardown") -> str:
    """Return the line about the removal: the number of resources, and the cluster's cost."""
    if teardown.is_of_hosts:
        machines = counted(len(teardown.removed), "machine")
        if teardown.others:
            others = ", ".join(teardown.others)
            return f"Cluster {teardown.name} goes on for {others}: your key is off {machines}."
        return f"Cluster {teardown.name} is gone: nothing of gpuctl is left on {machines}."
    cost = "cost unknown" if teardown.cost_usd is None else f"about {money(teardown.cost_usd)}"
    return (
        f"Cluster {teardown.name} is gone: {len(teardown.removed)} resources removed, "
        f"up {elapsed(teardown.seconds_up)}, {cost} at list price."
    )


def _warn(teardown: "Teardown", out: "Output") -> None:
    for warning in teardown.warnings:
        out.warn(warning)


def _verification_text(verification: "Verification") -> str:
    tags = " and ".join(f"{tag}={value}" for tag, value in verification.tags.items())
    count = len(verification.instances)
    ended = f"; {count} instances are terminated" if verification.instances else ""
    return (
        f"Verified: AWS lists nothing with {tags} in {verification.region},"
        f" of {len(verification.kinds)} kinds of resources, asked {verification.rounds}"
        f" times{ended}."
    )
