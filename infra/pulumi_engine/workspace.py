"""The Pulumi engine's folders for one cluster, and its start and stop."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pulumi import automation
from pulumi.automation import errors
from pulumi.automation._stack import StackInitMode  # its constructor's, and exported nowhere else
from semver import VersionInfo

from config.bucket import engine_url
from config.errors import InfraError
from config.files import write_whole
from config.folders import cache_home
from config.target import Target
from infra.pulumi_engine.passphrase import passphrase
from infra.pulumi_engine.plugins import NO_DOWNLOADS
from infra.pulumi_engine.stored_state import (
    VERSION,
    read_deployment,
    stack_outputs,
    write_empty_state,
)

if TYPE_CHECKING:
    from infra.pulumi_engine.installation import Engine

PROJECT = "gpuctl"
_OTHER_CREDENTIALS = frozenset(
    {
        *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        *("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"),
        *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_DEFAULT_REGION"),
    }
)
_PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


def folder(name: str, target: Target) -> Path:
    """Return the folder with the project's settings for the stack, and with its plans."""
    return target.state / "pulumi-project" / name


class Workspace(automation.LocalWorkspace):
    """A LocalWorkspace that starts the Pulumi engine as rarely as possible.

    A start takes up to 0.2 s of CPU time, and 0.2 s more if it derives a key from the passphrase:
    to show secrets, and in every preview, update, refresh and `destroy`. gpuctl keeps no secret in
    Pulumi.
    """

    pulumi_command: "EngineCommand"
    states: Path | None = None
    """The backend's folder; None if the backend is elsewhere: only the Pulumi engine reads it."""

    def select_stack(self, stack_name: str) -> None:
        """Do nothing: every command names its stack, and reports if it does not exist."""

    def export_stack(self, stack_name: str) -> automation.Deployment:
        """Return the stack's state; secrets stay encrypted."""
        if (stored := self._stored(stack_name)) is not None:
            return automation.Deployment(version=VERSION, deployment=stored)
        state = self._ask("stack", "export", "--stack", stack_name)
        return automation.Deployment(
            version=state.get("version"), deployment=state.get("deployment")
        )

    def import_stack(self, stack_name: str, state: automation.Deployment) -> None:
        """Replace the stack's state.

        The SDK's own method leaves a copy of the state in the temporary folder if the import fails,
        as it does while another Pulumi engine holds the stack's lock.
        """
        file = Path(self.work_dir) / "import.json"  # removed with the stack, if we are killed
        write_whole(file, json.dumps({"version": state.version, "deployment": state.deployment}))
        try:
            self._run("stack", "import", "--file", str(file), "--stack", stack_name)
        finally:
            file.unlink()

    def stack_outputs(self, stack_name: str) -> automation.OutputMap:
        """Return the outputs of the last complete update."""
        stored = self._stored(stack_name)
        shown = (
            stack_outputs(stored)
            if stored is not None
            else self._ask("stack", "output", "--json", "--stack", stack_name)
        )
        return {name: automation.OutputValue(value, secret=False) for name, value in shown.items()}

    def remove_stack(
        self, stack_name: str, force: bool | None = None, preserve_config: bool | None = None
    ) -> None:
        """Remove the stack's state and its earlier states from the backend."""
        del force, preserve_config
        self._run("stack", "rm", "--yes", "--remove-backups", "--stack", stack_name)

    def _stored(self, stack_name: str) -> dict[str, Any] | None:
        return read_deployment(_state_file(self.states, stack_name)) if self.states else None

    def _ask(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._run(*arguments))
        return answer

    def _run(self, *arguments: str) -> str:
        home = {"PULUMI_HOME": self.pulumi_home or ""}
        return self.pulumi_command.run(
            list(arguments), self.work_dir, {**home, **self.env_vars}
        ).stdout


class Operations(automation.Stack):
    """A stack that takes its results from events, and not from further starts of the engine."""

    workspace: Workspace

    def __init__(self, name: str, workspace: Workspace) -> None:
        super().__init__(name, workspace, StackInitMode.SELECT)

    @property
    def engine(self) -> "EngineCommand":
        """The Pulumi engine that works for this stack."""
        return self.workspace.pulumi_command

    def has_settings(self) -> bool:
        """Return whether this machine created a stack of this name, in any backend."""
        try:
            self.workspace.stack_settings(self.name)
        except FileNotFoundError:
            return False
        return True

    def make(self) -> None:
        """Create the stack if there is none; in a folder without a start of the engine."""
        if self.workspace.states is not None:
            file = _state_file(self.workspace.states, self.name)
            write_empty_state(file, f"organization/{PROJECT}/{self.name}")
            return
        with suppress(errors.StackAlreadyExistsError):  # nothing to do
            self.workspace.create_stack(self.name)

    def outputs(self) -> automation.OutputMap:
        """Return nothing: `infra.pulumi_engine.engine_events.Watch.outputs` has the outputs."""
        return {}

    def info(self, show_secrets: bool = True) -> automation.UpdateSummary:
        """Return an empty summary, and read no history."""
        del show_secrets
        return _NO_SUMMARY


_NO_SUMMARY = automation.UpdateSummary(
    kind="update",
    start_time=datetime.min,
    message="",
    environment={},
    config={},
    result="succeeded",
)


def workspace(name: str, target: Target, engine: "Engine") -> Workspace:
    """Return a workspace for the stack `name`; create its folder."""
    kept = backend_folder(target)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    made = Workspace(
        work_dir=str(folder(name, target)),
        pulumi_home=str(_home(name, target)),
        env_vars=_environment(name, target),
        project_settings=automation.ProjectSettings(name=PROJECT, runtime="python"),
        pulumi_command=EngineCommand(engine, target.credentials),
    )
    made.states = kept
    return made


def _state_file(states: Path, name: str) -> Path:
    return states / ".pulumi" / "stacks" / PROJECT / f"{name}.json"


def _home(name: str, target: Target) -> Path:
    """Create and return the Pulumi engine's home folder for the stack.

    The Pulumi engine logs each operation there (`logs/`,
    https://github.com/pulumi/pulumi/pull/23731, 3.258.0 cannot switch it off) and notes the chosen
    stack. The folder is removed with the stack. Plugins have hundreds of megabytes, so all stacks
    share them.
    """
    home, plugins = folder(name, target) / "home", cache_home() / "pulumi" / "plugins"
    home.mkdir(parents=True, exist_ok=True)
    plugins.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # an earlier or concurrent command created it
        (home / "plugins").symlink_to(plugins)
    return home


def remove_state(name: str, target: Target) -> None:
    """Remove the stack's state from the backend's folder, as far as it is still there.

    Pulumi leaves a state that it cannot read, and the files that a killed Pulumi engine was about
    to rename: `demo.json.bak.18eabbe28120e809.tmp` (gocloud.dev's fileblob, seen with 3.258.0 on
    2026-11-23).
    """
    kept = backend_folder(target)
    file = _state_file(kept, name) if kept else None
    for path in file.parent.glob(f"{file.name}*") if file else ():
        path.unlink(missing_ok=True)


def remove_folders(name: str, target: Target) -> None:
    """Remove the stack's folders on this machine; its state must be gone from the backend."""
    shutil.rmtree(folder(name, target), ignore_errors=True)  # the next `up` clears what stays
    kept = backend_folder(target)
    # `**` would fail on folders of other stacks that end meanwhile.
    for above in ("*", "*/*"):
        for empty in kept.glob(f".pulumi/{above}/{PROJECT}/{name}") if kept else ():
            for torn in empty.glob("*.tmp"):
                torn.unlink(missing_ok=True)
            with suppress(OSError):  # it may contain another client's lock
                empty.rmdir()


def backend_folder(target: Target) -> Path | None:
    """Return the folder that is the backend, or None for a backend elsewhere."""
    backend = urlsplit(target.backend_url)
    if backend.scheme != "file":
        return None
    return Path(url2pathname(backend.path)).expanduser()


def backend_url(target: Target) -> str:
    """Return the backend's URL for the Pulumi engine.

    If the backend is a folder, the Pulumi engine writes a file of attributes for each file. It does
    not write that file atomically: if it is killed meanwhile, it leaves an empty file, and then
    cannot read its state ("failed to load checkpoint: EOF", seen with 3.258.0 on 2026-11-20).
    `metadata=skip` of gocloud.dev's fileblob omits the attributes, which Pulumi does not use.
    """
    url = target.backend_url
    if target.bucket is not None:
        return engine_url(url, target.region, target.endpoint)
    if not url.startswith("file://") or "?" in url:
        return url
    return f"{url}?metadata=skip"


def _environment(name: str, target: Target) -> dict[str, str]:
    """Return the variables that the Pulumi engine and its plugins get in addition to ours."""
    environment = {
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_BACKEND_URL": backend_url(target),
        "AWS_REGION": target.region,
        **NO_DOWNLOADS,
        **target.environment,
    }
    if not any(name in os.environ or name in target.environment for name in _PASSPHRASES):
        environment["PULUMI_CONFIG_PASSPHRASE"] = passphrase(folder(name, target), target)
    if target.provider_address is not None:
        host, _, port = target.provider_address.rpartition(":")
        if host not in ("127.0.0.1", "localhost"):
            raise InfraError(
                f"the provider's address is {target.provider_address}, and must be on loopback",
                "the Pulumi engine can use only a provider on this machine",
            )
        environment["PULUMI_DEBUG_PROVIDERS"] = f"aws:{port}"
        # A seventh of the engine's CPU time goes into Go's garbage collection, for 10 MB of memory.
        # The provider of AWS, a child of the engine, is larger: it keeps Go's default.
        environment["GOGC"] = "400"
    return environment


class EngineCommand(automation.PulumiCommand):
    """The Pulumi engine as a process that Ctrl-C stops in good order.

    It runs in a separate session, so that the terminal's Ctrl-C reaches only gpuctl, which passes
    it on. After the first the Pulumi engine finishes its current steps and writes its state; the
    second ends it at once. Both raise KeyboardInterrupt when the Pulumi engine has ended.
    """

    def __init__(
        self, engine: "Engine", credentials: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        self._credentials = credentials
        self.command = str(engine.path)
        self.version = VersionInfo.parse(engine.version.removeprefix("v"))
        self._process: subprocess.Popen[str] | None = None
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Pass Ctrl-C on to the Pulumi engine in another thread, also if it is just starting."""
        self._is_interrupted = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: automation.OnOutput | None = None,
        on_error: automation.OnOutput | None = None,
    ) -> automation.CommandResult:
        """Run the Pulumi engine and return its output; raise CommandError if it fails.

        It gets credentials that are valid now, and none that an earlier start got.
        """
        if self._credentials is not None:
            # With keys and a profile the engine's provider would have to choose.
            kept = {name: v for name, v in additional_env.items() if name != "AWS_PROFILE"}
            additional_env = {**kept, **self._credentials()}
        path = f"{Path(self.command).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        process = subprocess.Popen(
            [self.command, "--non-interactive", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={
                **inherited_environment(additional_env),
                **additional_env,
                "PATH": path,
                "PULUMI_AUTOMATION_API": "true",
            },
            encoding="utf-8",
            start_new_session=True,
        )
        self._process = process
        if self._is_interrupted:
            process.send_signal(signal.SIGINT)
        output, out = _read(process.stdout, on_output)
        complaints, err = _read(process.stderr, on_error)
        interrupted = _wait(process)
        for reader in (out, err):
            reader.join()
        if interrupted:
            raise KeyboardInterrupt
        result = automation.CommandResult(
            stdout="\n".join(output), stderr="\n".join(complaints), code=process.returncode
        )
        if result.code != 0:
            raise errors.create_command_error(result)
        return result


def inherited_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return our environment, without AWS credentials if `given` has some."""
    if "AWS_ACCESS_KEY_ID" not in given:
        return dict(os.environ)
    return {name: value for name, value in os.environ.items() if name not in _OTHER_CREDENTIALS}


def _wait(process: "subprocess.Popen[str]") -> bool:
    """Wait until the process has ended; return whether Ctrl-C was pressed meanwhile."""
    interrupted = False
    while True:
        try:
            process.wait()
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
        else:
            return interrupted


def _read(
    stream: IO[str] | None, on_line: automation.OnOutput | None
) -> tuple[list[str], threading.Thread]:
    """Start a thread that reads the stream until it closes; return its growing lines and it."""
    assert stream is not None
    lines: list[str] = []

    def read() -> None:
        with stream:
            for line in stream:
                lines.append(line.rstrip())
                if on_line is not None:
                    on_line(line.rstrip())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return lines, thread
