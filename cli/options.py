"""The options that commands share, and the combined options of one command line."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.command_log import LEVELS, CommandLog, start
from cli.output import Output
from config.errors import InputError
from operations.chosen_target import DEFAULT_LAB, ChosenTarget, Places, choose, command

_NOT_LOGGED = ("config", "ssm-proxy")
"""A command that reports wrong settings itself, and what ssh calls for each connection."""

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
RefreshOption = Annotated[
    bool,
    typer.Option(
        "--refresh", help="Renew the user data and settings that machines were launched with."
    ),
]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Draw it again every 5 seconds, until Ctrl-C.")
]

OutputsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Put outputs in DIR/RUN; by default outputs/RUN next to the run file."
    ),
]

FoldOption = Annotated[bool, typer.Option("--fold", help="Print equal lines of many ranks once.")]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A manifest's ${NAME}; by default the environment's."
    ),
]
RuntimesOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="A folder with the runtimes that TrainJobs name."),
]


@dataclass
class Options:
    """The values of the options that every command takes."""

    lab: bool = False
    lab_name: str | None = None
    region: str | None = None
    profile: str | None = None
    backend: str | None = None
    as_json: bool = False
    quiet: bool = False
    no_color: bool = False
    raw: bool = False
    log_level: str | None = None
    command: str = ""
    """The command of the line, once the parser knows it."""
    has_terraform_codes: bool = False
    """True for `plan --detailed-exitcode`: wrong input ends it with 1, because 2 means changes."""
    log: CommandLog | None = field(default=None, compare=False)
    """The log of the command, once it has begun."""

    def start_log(self) -> None:
        """Log what the command does from now on; InputError for a level that does not exist."""
        level = self.log_level or "info"
        if level not in LEVELS:
            allowed = f"{', '.join(LEVELS)} are allowed"
            raise InputError(f"--log-level is '{level}'", allowed)
        if self.command not in _NOT_LOGGED:
            self.log = start(self.command, sys.argv[1:], level)

    def take(self, given: dict[str, Any]) -> None:
        """Keep the options given; the last one on the line wins."""
        for name in SHARED & given.keys():
            if given[name] not in (None, False):
                setattr(self, name, given[name])

    @property
    def places(self) -> Places | None:
        """Return the chosen lab, None for AWS; InputError for a name that no lab can have."""
        if not self.lab and self.lab_name is None:
            return None
        return Places(DEFAULT_LAB if self.lab_name is None else self.lab_name)

    @property
    def output(self) -> Output:
        """Return the output with the chosen format, colours and amount."""
        return Output(self.as_json, self.quiet, self.no_color, self.raw, self.program)

    @property
    def program(self) -> str:
        """Return `gpuctl` with the given options that choose the target, for a shell."""
        lab = ["--lab"] if self.lab else []
        lab = lab if self.lab_name is None else ["--lab-name", self.lab_name]
        return command(lab, region=self.region, profile=self.profile, backend=self.backend)


SHARED = frozenset(Options.__dataclass_fields__) - {"command", "has_terraform_codes", "log"}
"""The names of the options that every command takes."""


def options(context: typer.Context) -> Options:
    """Return the options of a command's context."""
    return context.find_root().ensure_object(Options)


def chosen_target(context: typer.Context) -> ChosenTarget:
    """Return what the command acts on."""
    given = options(context)
    return choose(given.places, given.region, given.profile, given.backend)


def output(context: typer.Context) -> Output:
    """Return the command's output."""
    return options(context).output
