"""`gpuctl`: the commands, the global options, and the one place where errors become exit codes."""

import logging
import os
from typing import Annotated, NoReturn

import typer

from cli.command_table import Root
from cli.complete import regions
from cli.options import Options
from cli.output import Output
from cli.terminal import discard_unwritten
from config.errors import ExitCode, GpuctlError, InvalidFiles
from config.files import disk_errors
from config.settings import export_state
from config.version import gpuctl_version
from operations import lab

_LOGGER = logging.getLogger("gpuctl")

_REPORT_PACKAGES = {
    "jinja2": "reports need jinja2",
    "plotext": "plots need plotext",
    "vl_convert": "reports need vl-convert-python",
}
"""Packages of the extra `report`."""

app = typer.Typer(
    name="gpuctl",
    cls=Root,
    epilog="start/getting-started.md",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(shown: bool) -> None:
    if shown:
        Output().say(f"gpuctl {gpuctl_version()}")
        raise typer.Exit


_TARGET = "Target, before or after the command"
_OUTPUT = "Output, before or after the command"


_Lab = Annotated[
    bool,
    typer.Option(
        "--lab",
        metavar="[=NAME]",
        help="Rehearse on this machine: in the lab, or in the lab NAME.",
        rich_help_panel=_TARGET,
    ),
]
_LabName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The same as --lab=NAME.", rich_help_panel=_TARGET),
]
_Region = Annotated[
    str | None,
    typer.Option(
        metavar="REGION", help="AWS region.", rich_help_panel=_TARGET, autocompletion=regions
    ),
]
_Profile = Annotated[
    str | None, typer.Option(metavar="NAME", help="AWS profile.", rich_help_panel=_TARGET)
]
_Backend = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Bucket of a team, s3://…; by default a folder of yours.",
        rich_help_panel=_TARGET,
    ),
]
_AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON document on stdout, and nothing else.", rich_help_panel=_OUTPUT
    ),
]
_Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Show results and errors, no progress.", rich_help_panel=_OUTPUT
    ),
]
_NoColor = Annotated[
    bool,
    typer.Option(
        "--no-color", help="No colours; as NO_COLOR in the environment.", rich_help_panel=_OUTPUT
    ),
]
_Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        help="Pass on control characters that jobs and nodes print.",
        rich_help_panel=_OUTPUT,
    ),
]
_LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="What the command's log has: debug, info, warning, error.  [default: info]",
        rich_help_panel=_OUTPUT,
    ),
]
_Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
]


@app.callback()
def options(
    context: typer.Context,
    lab: _Lab = False,
    lab_name: _LabName = None,
    region: _Region = None,
    profile: _Profile = None,
    backend: _Backend = None,
    as_json: _AsJson = False,
    quiet: _Quiet = False,
    no_color: _NoColor = False,
    raw: _Raw = False,
    log_level: _LogLevel = None,
    version: _Version = False,
) -> None:
    """Rent a GPU cluster with EFA, run a distributed job on it, give it back.

    $ gpuctl up cluster.yaml
    $ gpuctl run nccl-tests.yaml --on-stop destroy
    $ gpuctl status --lab
    """
    del lab, lab_name, region, profile, backend  # the parser keeps them, see `Options`
    del as_json, quiet, no_color, raw, log_level, version
    command = context.invoked_subcommand or ""
    context.ensure_object(Options).command = command
    if command != "config":  # which reports a wrong file itself
        export_state()
    if command != "lab":  # its images and machines set their files' modes
        os.umask(0o077)  # only its owner can read what gpuctl and Pulumi's engine write


def _end(line: str, code: int, given: Options) -> NoReturn:
    discard_unwritten()
    given.output.complain(line)
    discard_unwritten()
    raise SystemExit(code)


def _is_interruption(end: SystemExit) -> bool:
    """Return whether Ctrl-C caused it: typer turns that into an exit without a message."""
    behind = end.__context__
    return behind is not None and isinstance(behind.__cause__, KeyboardInterrupt)


def _leave_threads(code: int) -> NoReturn:
    """End the process. Python would first wait for threads with throttled requests to AWS."""
    discard_unwritten()
    os._exit(code)


def main() -> None:
    """Run the command and exit with its code, never with a traceback."""
    logging.getLogger().addHandler(logging.NullHandler())  # else Python prints warnings on stderr
    given = Options()
    try:
        _run(given)
    except SystemExit as end:
        if given.log is not None:
            given.log.write_end(end.code)
        raise


def _run(given: Options) -> None:
    """Run the command and exit with its code, also after an error."""
    try:
        with disk_errors():
            app(obj=given)
    except InvalidFiles as error:
        _end(str(error), _exit_code(error, given), given)
    except GpuctlError as error:
        if error.exit_code != ExitCode.INPUT:
            _LOGGER.error("%s", error, exc_info=True)
        _end(f"gpuctl: error: {error}", _exit_code(error, given), given)
    except SystemExit as end:
        if not _is_interruption(end):
            raise
        try:
            _end(
                "gpuctl: interrupted; `gpuctl status` shows what exists",
                ExitCode.INTERRUPTED,
                given,
            )
        finally:
            _leave_threads(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        raise SystemExit(1) from None  # the reader of the output has gone: nobody reads a message
    except Exception as error:
        _LOGGER.exception("a mistake in gpuctl")
        known, remedy = f"{type(error).__name__}: {error}", _report(given)
        if isinstance(error, ModuleNotFoundError) and error.name in _REPORT_PACKAGES:
            known = f"{_REPORT_PACKAGES[error.name]}, which is not installed"
            remedy = (
                "install gpuctl with its extra `report`: uv tool install --force '.[report]' in its"
                " checkout"
            )
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("moto"):
            remedy = lab.INSTALL_EXTRA
            known = "the lab needs moto, which is not installed"
        _end(f"gpuctl: error: {known}; {remedy}", _own_failure(given), given)


def _report(given: Options) -> str:
    """Return what to do about a mistake of ours."""
    log = given.log
    where = f" with {log.path}" if log is not None and log.is_written else ""
    return f"this is a mistake in gpuctl, please report it{where}"


def _exit_code(error: GpuctlError, given: Options) -> int:
    """Return the exit code of an error."""
    if given.has_terraform_codes and error.exit_code == ExitCode.INPUT:
        return ExitCode.FAILED
    return _own_failure(given) if error.exit_code == ExitCode.FAILED else error.exit_code


def _own_failure(given: Options) -> int:
    """Return the exit code of a failure of gpuctl itself."""
    is_run = given.command in ("run", "attach", "wait", "bisect", "health")
    return ExitCode.OWN_FAILURE if is_run else ExitCode.FAILED
