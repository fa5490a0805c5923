"""A launch plan as text: what would run where, in which order."""

from typing import TYPE_CHECKING

from cli.terminal import say, say_json

if TYPE_CHECKING:
    from engine.plan import LaunchPlan


def show(plan: "LaunchPlan", as_json: bool) -> None:
    """The plan is on stdout: the very object that a run executes."""
    if as_json:
        say_json(plan.model_dump(mode="json"))
        return
    say(
        f"Run {plan.run_id} on cluster {plan.cluster}: {len(plan.nodes)} nodes, "
        f"startup {plan.startup_order}, over when {plan.stop_criteria}, then {plan.on_stop}"
    )
    for node in plan.nodes:
        say(f"\nrank {node.rank}  {node.name}  {node.private_ip}  {node.role}")
        for name, value in node.environment.items():
            say(f"  {name}={value!r}")
        for path, text in node.files.items():
            say(f"  {path}:")
            say("\n".join(f"    {line}" for line in text.splitlines()))
    say("\nscript of every node:" if len({n.script for n in plan.nodes}) == 1 else "\nscripts:")
    for script in dict.fromkeys(n.script for n in plan.nodes):
        say("\n".join(f"  {line}" for line in script.splitlines()))
