"""The commands of `gpuctl`; a line imports and makes only the command that it names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from cli.other_tools import OTHERS
from cli.parser import Command, CommandForNode, CommandForNodes, CommandGroup

_CLUSTERS, _RUNS, _FILES, _MACHINE = "Clusters", "Runs", "Files", "This machine"


@dataclass(frozen=True)
class _Entry:
    """A command: its module in `cli` and the name there, its group in help, and its page.

    The name is that of a function, or the typer of a group of commands.
    """

    module: str
    name: str
    panel: str
    page: str
    kind: type[Command] = Command
    hidden: bool = False


_ENTRIES = {
    "plan": _Entry("plan", "plan", _CLUSTERS, "do/clusters.md"),
    "up": _Entry("up", "up", _CLUSTERS, "do/clusters.md"),
    "status": _Entry("status", "status", _CLUSTERS, "do/clusters.md"),
    "health": _Entry("health", "health", _CLUSTERS, "do/health.md"),
    "heal": _Entry("heal", "heal", _CLUSTERS, "do/health.md"),
    "ssh": _Entry("ssh", "ssh", _CLUSTERS, "do/connect.md", CommandForNode),
    "ssh-config": _Entry("ssh_config", "ssh_config", _CLUSTERS, "do/connect.md"),
    "exec": _Entry("exec_", "exec_", _CLUSTERS, "do/connect.md", CommandForNodes),
    "cp": _Entry("cp", "cp", _CLUSTERS, "do/code.md"),
    "grant": _Entry("grant", "grant", _CLUSTERS, "do/sharing-access.md"),
    "revoke": _Entry("revoke", "revoke", _CLUSTERS, "do/sharing-access.md"),
    "extend": _Entry("extend", "extend", _CLUSTERS, "do/lease.md"),
    "down": _Entry("down", "down", _CLUSTERS, "do/clusters.md"),
    "drift": _Entry("drift", "drift", _CLUSTERS, "do/drift.md"),
    "cost": _Entry("cost", "cost", _CLUSTERS, "do/cost.md"),
    "gc": _Entry("gc", "gc", _CLUSTERS, "do/gc.md"),
    "capacity": _Entry("capacity", "capacity", _CLUSTERS, "do/capacity.md"),
    "buy": _Entry("buy", "buy", _CLUSTERS, "do/capacity.md"),
    "run": _Entry("run", "run", _RUNS, "do/runs.md"),
    "attach": _Entry("attach", "attach", _RUNS, "do/detach.md"),
    "wait": _Entry("wait", "wait", _RUNS, "do/detach.md"),
    "logs": _Entry("logs", "logs", _RUNS, "do/logs.md"),
    "debug": _Entry("debug", "debug", _RUNS, "do/hangs.md", CommandForNodes),
    "ps": _Entry("ps", "ps", _RUNS, "do/runs.md"),
    "stop": _Entry("stop", "stop", _RUNS, "do/runs.md"),
    "top": _Entry("top", "top", _RUNS, "do/metrics.md"),
    "results": _Entry("results", "results", _RUNS, "do/nccl-tests.md"),
    "report": _Entry("report", "report", _RUNS, "do/report.md"),
    "bisect": _Entry("bisect", "bisect", _RUNS, "do/bisect.md"),
    "init": _Entry("init", "init", _FILES, "start/getting-started.md"),
    "validate": _Entry("validate", "validate", _FILES, "look-up/diagnostics.md"),
    "explain": _Entry("explain", "explain", _FILES, "look-up/diagnostics.md"),
    "templates": _Entry("templates", "templates", _FILES, "do/templates.md"),
    "schema": _Entry("schema", "schema", _FILES, "look-up/run-file.md"),
    "doctor": _Entry("doctor", "doctor", _MACHINE, "look-up/errors.md"),
    "docs": _Entry("docs", "docs", _MACHINE, "index.md"),
    "support": _Entry("support", "support", _MACHINE, "look-up/troubleshooting.md"),
    "config": _Entry("config_", "config", _MACHINE, "look-up/config.md"),
    "iam-policy": _Entry("iam_policy", "iam_policy", _MACHINE, "do/permissions.md"),
    "ssm-proxy": _Entry("ssm_proxy", "ssm_proxy", _MACHINE, "", hidden=True),
    "queue": _Entry("queue", "app", _RUNS, ""),
    "lab": _Entry("lab", "app", _MACHINE, ""),
}


class Commands(Mapping[str, Any]):
    """The commands by their names; each is imported and made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, _ENTRIES[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in _ENTRIES

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


class Root(CommandGroup):
    """The group `gpuctl`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": Commands()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the line names; for another tool's word name ours, and why."""
        if args[:1] and args[0] in OTHERS and args[0] not in self.commands:
            ctx.fail(f"No such command '{args[0]}': {OTHERS[args[0]]}.")
        return super().resolve_command(ctx, args)


def _made(name: str, entry: _Entry) -> Any:
    """Return the command, as typer makes it of its function, or the group of its typer."""
    command = getattr(import_module(f"cli.commands.{entry.module}"), entry.name)
    if isinstance(command, typer.Typer):
        group: Any = typer.main.get_command(command)
        group.name, group.rich_help_panel = name, entry.panel
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(
        name,
        cls=entry.kind,
        rich_help_panel=entry.panel,
        epilog=entry.page or None,
        hidden=entry.hidden,
    )(command)
    return typer.main.get_command(alone)
