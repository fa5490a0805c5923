"""A launch plan as text: what would run where, in which order."""

from typing import TYPE_CHECKING

from config.quantities import size
from engine.contract.codec import to_json
from operations import launch_details

if TYPE_CHECKING:
    from pathlib import Path

    from cli.output import Output
    from engine.contract.node_plan import NodePlan
    from engine.contract.plan import LaunchPlan
    from operations.prepared_run import Tree

_LISTED = 40
"""How many files are listed."""


def show(
    plan: "LaunchPlan",
    out: "Output",
    tree: "Tree | None" = None,
    outputs: "Path | None" = None,
) -> None:
    """Print the plan on stdout: the same object that a run executes.

    `tree` has the files that would travel: `travels` in JSON. `outputs` is the folder of this
    machine for outputs.
    """
    document = to_json(plan)
    if tree is not None:
        document["travels"] = _code_document(tree)
    lines = [*_head(plan), *_code(plan, tree, outputs), *_cases(plan, out), *_body(plan)]
    out.show(document, lines)


def _head(plan: "LaunchPlan") -> list[str]:
    lines = [
        f"Run {plan.run_id} of type {plan.type} on cluster {plan.cluster}: {len(plan.nodes)} nodes,"
        f" startup {plan.startup_order}, over when {plan.stop_criteria}, then {plan.on_stop}",
        f"network preset {plan.network.preset}, verify {plan.network.verify}",
    ]
    if plan.on_stop == "destroy":
        lines.append(
            "if no client is attached at its end, the nodes power off a minute later:"
            f" {launch_details.unattended_end(plan)}"
        )
    if plan.sizes:
        lines.append(
            f"goes on without lost nodes that do not come back, with at least {plan.least_nodes}"
        )
    if plan.image is not None:
        lines.append(f"image {plan.image.reference}")
    if plan.is_spot:
        lines.append(launch_details.spot_notice())
    if plan.dashboard:
        lines.append(f"dashboard {plan.dashboard}")
    return [*lines, *_notifications(plan)]


def _notifications(plan: "LaunchPlan") -> list[str]:
    """Return for each target of notifications who it is, and what its first event sends."""
    lines = []
    bodies = launch_details.notification_bodies(plan)
    for index, (target, body) in enumerate(zip(plan.notify, bodies, strict=True)):
        to = f"secret {target.to_secret}" if target.to_secret else target.to
        what = f"webhook in the form {target.form}"
        if target.form in ("command", "email"):
            what = target.form
        to += f", to {target.values['to']}" if target.form == "email" else ""
        lines.append(f"notify[{index}] {what}, on {', '.join(target.on)}: {to}")
        lines.append(f"  {body}")
    return lines


def _code(plan: "LaunchPlan", tree: "Tree | None", outputs: "Path | None") -> list[str]:
    """Return what would travel, as text; the first files, and what comes back."""
    if plan.code is None:
        return []
    lines = [f"working folder {plan.nodes[0].environment['GPUCTL_WORKDIR']}"]
    if tree is not None:
        lines.append(f"code {tree.digest[:12]}: {plan.code.files} files, {size(plan.code.size)}")
        lines += [f"  {path}  {size(length)}" for path, _, _, _, length in tree.files[:_LISTED]]
        if len(tree.files) > _LISTED:
            lines.append(f"  … and {len(tree.files) - _LISTED} more (--json lists all)")
    if plan.code.outputs:
        place = f" come back to {outputs / plan.run_id}" if outputs else ""
        lines.append(f"outputs {', '.join(plan.code.outputs)}{place}")
    return lines


def _code_document(tree: "Tree") -> list[dict[str, str | int]]:
    """Return what would travel, for JSON."""
    return [
        {"path": path, "kind": kind, "mode": f"{mode:o}", "size": length}
        for path, kind, mode, _, length in tree.entries
    ]


def _cases(plan: "LaunchPlan", out: "Output") -> list[str]:
    """Return the cases of nccl-tests in order, with the bandwidth that each must reach."""
    if plan.sweep is None:
        return []
    gates: dict[int, list[str]] = {}
    for gate in plan.sweep.gates:
        for case in gate.cases:
            gates.setdefault(case, []).append(f">= {gate.busbw:g} GB/s at {gate.size} bytes")
    rows = [
        (str(case.number), case.title, "; ".join(gates.get(case.number, ())))
        for case in plan.sweep.cases
    ]
    head = ("case", "what is measured", "gate")
    return ["", *out.table(head, rows, right=head[:1], drop=())]


def _body(plan: "LaunchPlan") -> list[str]:
    """Return first what all nodes have in common, then the rest of each node."""
    parts = [_parts(node) for node in plan.nodes]
    common = [part for part in parts[0] if all(part in others for others in parts)]
    lines = ["", "every node:", *common]
    for node, own in zip(plan.nodes, parts, strict=True):
        ranks = f", {node.processes} ranks" if node.processes else ""
        lines += ["", f"rank {node.rank}  {node.name}  {node.private_ip}  {node.role}{ranks}"]
        lines += [part for part in own if part not in common]
    return lines


def _parts(node: "NodePlan") -> list[str]:
    """Return variables, secrets by name, files and the script, each as one text."""
    return [
        *(f"  {name}={value!r}" for name, value in node.environment.items()),
        *(f"  {name}=*** (secret {secret})" for name, secret in node.secrets.items()),
        *(f"  {path}:\n{_indented(text)}" for path, text in node.files.items()),
        f"  script:\n{_indented(node.script)}",
    ]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
