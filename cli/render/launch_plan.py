"""A launch plan as text: what would run where, in which order."""

from typing import TYPE_CHECKING

from engine.contract.codec import to_json

if TYPE_CHECKING:
    from cli.output import Output
    from engine.contract.node_plan import NodePlan
    from engine.contract.plan import LaunchPlan
    from engine.plan.source_tree import Tree


def show(plan: "LaunchPlan", out: "Output", tree: "Tree | None" = None) -> None:
    """Print the plan on stdout: the same object that a run executes.

    `tree` has the files that would travel: `travels` in JSON.
    """
    from cli.code import code_document, code_lines

    document = to_json(plan)
    if tree is not None:
        document["travels"] = code_document(tree)
    lines = [*_head(plan), *code_lines(plan, tree), *_cases(plan, out), *_body(plan)]
    out.show(document, lines)


def _head(plan: "LaunchPlan") -> list[str]:
    from engine.record.run_errors import unattended_end

    lines = [
        f"Run {plan.run_id} of type {plan.type} on cluster {plan.cluster}: {len(plan.nodes)} nodes,"
        f" startup {plan.startup_order}, over when {plan.stop_criteria}, then {plan.on_stop}",
        f"network preset {plan.network.preset}, verify {plan.network.verify}",
    ]
    if plan.on_stop == "destroy":
        lines.append(
            "if no client is attached at its end, the nodes power off a minute later:"
            f" {unattended_end(plan)}"
        )
    if plan.sizes:
        lines.append(
            f"goes on without lost nodes that do not come back, with at least {plan.least_nodes}"
        )
    if plan.image is not None:
        lines.append(f"image {plan.image.reference}")
    if plan.dashboard:
        lines.append(f"dashboard {plan.dashboard}")
    return [*lines, *_notifications(plan)]


def _notifications(plan: "LaunchPlan") -> list[str]:
    """Return for each target of notifications who it is, and what its first event sends."""
    from time import time

    from engine.agent.notify.notices import json_body, slack_body
    from engine.plan.notification_examples import examples

    notices = tuple(examples(plan, time())) if plan.notify else ()
    lines = []
    for index, target in enumerate(plan.notify):
        to = f"secret {target.to_secret}" if target.to_secret else target.to
        what = "command" if target.form == "command" else f"webhook in the form {target.form}"
        lines.append(f"notify[{index}] {what}, on {', '.join(target.on)}: {to}")
        first = next(notice for notice in notices if notice.event in target.on)
        lines.append(f"  {slack_body(first) if target.form == 'slack' else json_body(first)}")
    return lines


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
    return ["", *out.table(("case", "what is measured", "gate"), rows, right=("case",))]


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
