"""`gpuctl`: the commands, the global options, and the one place where errors become exit codes."""

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cli import (
    capacity,
    doctor,
    down,
    exec_,
    lab,
    logs,
    plan,
    ps,
    results,
    run,
    schema,
    ssh,
    ssm_proxy,
    status,
    stop,
    templates,
    terminal,
    up,
    validate,
)
from cli.session import Session
from config.errors import GpuctlError, InvalidFiles

if TYPE_CHECKING:
    from lab.places import Places

RUN_FAILED_ITSELF = 125  # as `docker run`: not the job's own code, gpuctl could not run it

_invoked: list[str] = []
"""The command that the parser found behind the global options."""

app = typer.Typer(
    name="gpuctl",
    help="Rent a GPU cluster with EFA, run a distributed job on it, give it back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gpuctl {version('gpuctl-cluster')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    in_lab: Annotated[
        bool, typer.Option("--lab", help="Rehearse in the lab: an AWS region on this machine.")
    ] = False,
    lab_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Rehearse in the lab NAME, one of several side by side."),
    ] = None,
    region: Annotated[str | None, typer.Option(help="AWS region.")] = None,
    profile: Annotated[str | None, typer.Option(help="AWS profile.")] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Pulumi backend (s3://…); by default a folder of the user's state."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Write the traceback of an error to a file.")
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Pass on control characters that jobs and nodes print."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Rent a GPU cluster with EFA, run a distributed job on it, give it back."""
    _invoked.append(context.invoked_subcommand or "")
    del debug, version  # read before anything can fail, see `main`; and by its callback
    terminal.is_raw = raw
    if context.invoked_subcommand != "lab":  # its images and machines have modes of their own
        os.umask(0o077)  # whatever we and Pulumi's engine keep is its owner's alone
    context.obj = Session(_lab(in_lab, lab_name), region, profile, backend)


def _lab(in_lab: bool, name: str | None) -> "Places | None":
    """Return the lab that the options mean; InputError for a name that no lab can have."""
    if not in_lab and name is None:
        return None
    from lab.places import DEFAULT, Places

    return Places(DEFAULT if name is None else name)


app.command("plan")(plan.plan)
app.command("up")(up.up)
app.command("capacity")(capacity.capacity)
app.command("status")(status.status)
app.command("ssh", context_settings={"ignore_unknown_options": True})(ssh.ssh)
app.command("ssm-proxy", hidden=True)(ssm_proxy.ssm_proxy)
app.command("exec", context_settings={"ignore_unknown_options": True})(exec_.exec_)
app.command("down")(down.down)
app.command("run")(run.run)
app.command("logs")(logs.logs)
app.command("ps")(ps.ps)
app.command("stop")(stop.stop)
app.command("results")(results.results)
app.command("validate")(validate.validate)
app.command("templates")(templates.templates)
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)
app.add_typer(lab.app, name="lab")


def _debug_file() -> str:
    """The traceback of the current exception is in a file; its path is returned."""
    import time

    from config.folders import state_home

    folder = state_home() / "debug"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.log"
    path.touch(mode=0o600)
    path.write_text(traceback.format_exc())
    return str(path)


def _end(line: str, code: int, debug: bool) -> NoReturn:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # who read us has gone; Python's own flush at the end would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    terminal.say(line, sys.stderr)
    if debug:
        terminal.say(f"gpuctl: the traceback is in {_debug_file()}", sys.stderr)
    raise SystemExit(code)


def _is_interruption(end: SystemExit) -> bool:
    """Whether Ctrl-C is behind it: typer makes that an exit without a word."""
    behind = end.__context__
    return behind is not None and isinstance(behind.__cause__, KeyboardInterrupt)


def _leave_threads(code: int) -> NoReturn:
    """The process has ended. Python itself would wait for questions that AWS throttles."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _own_failure() -> int:
    """The exit code of a failure of gpuctl's own; the parser has told which command it was."""
    return RUN_FAILED_ITSELF if _invoked == ["run"] else 1


def main() -> None:
    """The command has run; the process ends with its exit code, never with a traceback."""
    debug = "--debug" in sys.argv[1:]
    _invoked.clear()
    try:
        app()
    except InvalidFiles as error:
        _end(str(error), error.exit_code, debug)
    except GpuctlError as error:
        code = error.exit_code
        _end(f"gpuctl: error: {error}", _own_failure() if code == 1 else code, debug)
    except SystemExit as end:
        if not _is_interruption(end):
            raise
        try:
            _end("gpuctl: interrupted; `gpuctl status` tells what exists", 130, debug)
        finally:
            _leave_threads(130)
    except BrokenPipeError:
        raise SystemExit(1) from None  # the reader of our output went away: nothing to say to it
    except Exception as error:
        known = f"gpuctl: error: {type(error).__name__}: {error}"
        remedy = "this is a mistake in gpuctl; run again with --debug and report the file it names"
        _end(f"{known}; {remedy}", _own_failure(), debug)
