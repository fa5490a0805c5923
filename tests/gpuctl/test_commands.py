"""The Python API does what the command line does: each command and option, or why not."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints, is_typeddict

import typer

import gpuctl
from cli.main import app
from gpuctl import Cluster, Lab, Run

API: dict[str, tuple[Callable[..., Any], ...]] = {
    "attach": (Run.attach,),
    "bisect": (Cluster.bisect,),
    "buy": (gpuctl.buy,),
    "capacity": (gpuctl.capacity,),
    "config": (gpuctl.settings,),
    "cost": (gpuctl.cost,),
    "cp": (Cluster.cp,),
    "debug": (Run.processes,),
    "docs": (gpuctl.docs,),
    "doctor": (gpuctl.doctor,),
    "down": (Cluster.down,),
    "drift": (Cluster.drift,),
    "exec": (Cluster.exec,),
    "explain": (gpuctl.explain,),
    "extend": (Cluster.extend,),
    "gc": (gpuctl.gc,),
    "grant": (Cluster.grant, Cluster.members),
    "heal": (Cluster.heal, Cluster.return_nodes),
    "health": (Cluster.health,),
    "iam-policy": (gpuctl.iam_policy, gpuctl.iam_boundary),
    "lab fault clear": (Lab.clear_faults,),
    "lab fault list": (Lab.faults,),
    "lab fault set": (Lab.set_fault,),
    "lab images": (Lab.images,),
    "lab start": (Lab.start,),
    "lab status": (Lab.status, Lab.leftovers),
    "lab stop": (Lab.stop,),
    "logs": (Run.logs,),
    "plan": (gpuctl.plan,),
    "ps": (gpuctl.runs, gpuctl.prune_logs),
    "queue drop": (Run.drop,),
    "queue move": (Run.move,),
    "queue show": (Cluster.queue,),
    "report": (Run.report,),
    "results": (Run.results, Run.compare, Run.keep_baseline),
    "revoke": (Cluster.revoke,),
    "run": (Cluster.run, gpuctl.plan_run, Run.attach),
    "schema": (gpuctl.schema,),
    "ssh": (Cluster.ssh_command,),
    "ssh-config": (Cluster.write_ssh_config, Cluster.remove_ssh_config),
    "status": (gpuctl.clusters, Cluster.status),
    "stop": (Run.stop,),
    "support": (gpuctl.support,),
    "templates": (gpuctl.templates,),
    "top": (Cluster.usage, gpuctl.usage, Run.usage, Run.past_usage),
    "up": (gpuctl.up, gpuctl.propose),
    "validate": (gpuctl.validate,),
    "wait": (Run.wait,),
}
"""The commands, and what does the same in Python."""

WITHOUT_API = {
    "init": "it asks a person; gpuctl.propose returns the cluster that a run needs",
    "ssm-proxy": "ssh calls it, no person and no program",
}
"""The commands that have nothing in Python, and why."""

RENAMED = {
    "commands": "for_",  # of iam-policy
    "limit": "number",
    "owners": "owner",
    "run_file": "for_",  # of up
    "secrets": "secret",
    "check_health": "no_health",
    "values": "set_",
    "file": "files",
    "nodes": "node",
    "before": "baseline",
}
"""Parameters of the API by other names than the options have: theirs are of Python, or plural."""

OPTIONS_WITHOUT_PARAMETER = {
    "yes": "a call is the consent",
    "folds": "it is about how lines are printed",
    # A part of the name: an object of the API is a cluster, or a run.
    "cluster": "the method's object",
    "run": "the method's object",
    "top name": "each of the functions has one meaning of it",
    # Separate functions.
    "iam-policy boundary": "iam_boundary",
    "lab status leftovers": "Lab.leftovers",
    "ps prune": "prune_logs",
    "heal return_": "Cluster.return_nodes",
    "results compare": "Run.compare",
    "results keep_baseline": "Run.keep_baseline",
    "plan detailed_exitcode": "the plan says whether it is empty",
    "run detach": "Cluster.run returns once the run has started; Run.attach follows it",
    "run dry_run": "plan_run",
    "ssh-config remove": "remove_ssh_config",
    # What a program does with the values that it gets.
    "ps watch": "a loop",
    "status watch": "a loop",
    "attach since": "each event has its time",
    "debug command": "a program has its own terminal: Cluster.ssh_command",
    "debug port": "a program has its own terminal: Cluster.ssh_command",
    "debug rank": "a condition on the processes",
    "exec terminal": "a program has its own terminal: Cluster.ssh_command",
    "logs grep": "a condition on the lines",
    "logs node": "a condition on the lines",
    "logs rank": "a condition on the lines",
    "logs since": "a condition on the lines",
    "logs tail": "a slice of the lines",
    "top gpus": "the values have each GPU",
    "top once": "a call asks once",
    # Text and pictures: they are of the command line alone.
    "report png": "the command draws the page; Run.report has its values",
    "report to": "the command writes the page; Run.report has its values",
    "results csv": "the values have each row",
    "results plot": "the values have each row",
}
"""Options that have no parameter in Python, of all commands or of one, and why."""


def commands(words: str = "", command: Any = None) -> Iterator[tuple[str, set[str]]]:
    """Yield each command with the names of its parameters."""
    command = command or typer.main.get_command(app)
    for name, sub in getattr(command, "commands", {}).items():
        path = f"{words} {name}".strip()
        if hasattr(sub, "commands"):
            yield from commands(path, sub)
        else:
            yield path, {each.name for each in sub.params} - {"help"}


def parameters(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names of the function's parameters, also those of its typed options."""
    hints = get_type_hints(inspect.unwrap(function))
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = hints[name].__args__
            assert is_typeddict(options)
            yield from get_type_hints(options)
        else:
            yield name


COMMANDS = dict(commands())


def test_every_command_has_a_function_or_a_reason() -> None:
    assert set(COMMANDS) == {*API, *WITHOUT_API}
    assert len(COMMANDS) > 40


def test_every_option_has_a_parameter_or_a_reason() -> None:
    missing, used = set(), set()
    for command, options in COMMANDS.items():
        named = {name for function in API.get(command, ()) for name in parameters(function)}
        named |= {RENAMED[name] for name in named if name in RENAMED}
        for option in options - named if command in API else ():
            reasons = {option, f"{command} {option}"} & OPTIONS_WITHOUT_PARAMETER.keys()
            used |= reasons
            if not reasons:
                missing.add(f"{command} {option}")
    assert missing == set()
    assert used == set(OPTIONS_WITHOUT_PARAMETER), "a reason that no option needs"


def test_the_options_of_all_commands_are_those_of_all_functions() -> None:
    assert {"lab", "region", "profile", "backend"} < set(get_type_hints(gpuctl.TargetOptions))
