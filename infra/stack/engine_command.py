"""A start of Pulumi's engine, the `pulumi` command, as the Automation API asks for it."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from pulumi import automation
from pulumi.automation import errors
from semver import VersionInfo

from infra.stack.credential_server import URL, credential_server
from infra.stack.installation import Engine

_OTHER_CREDENTIALS = frozenset(
    {
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SECURITY_TOKEN",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_DEFAULT_REGION",
    }
)


class EngineCommand(automation.PulumiCommand):
    """The command that the Automation API runs, with two things that the SDK's own one lacks.

    Ctrl-C stops it in good order: it runs in a separate session, so that the terminal's Ctrl-C
    reaches only gpuctl, which passes it on. After the first the engine finishes its current steps
    and writes its state; the second ends it at once. Both raise KeyboardInterrupt when the engine
    has ended. And the engine gets credentials that are valid now, also an hour later
    (`infra.stack.credential_server`).
    """

    def __init__(
        self, engine: Engine, credentials: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        # The SDK's own __init__ would start the engine to read the version, which is known.
        self.command = str(engine.path)
        self.version = VersionInfo.parse(engine.version)
        self._credentials = credentials
        self._process: subprocess.Popen[str] | None = None
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Stop the engine that runs in another thread, and every later start of this command."""
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
        """Run the engine and return its output; raise CommandError if it fails.

        Nobody passes `on_output` and `on_error`: gpuctl reads the engine's events.
        """
        del on_output, on_error
        if self._credentials is None:
            return self._run(args, cwd, additional_env)
        # A profile would come before the credentials that are served.
        kept = {name: v for name, v in additional_env.items() if name != "AWS_PROFILE"}
        with credential_server(self._credentials) as variables:
            return self._run(args, cwd, {**kept, **variables})

    def _run(
        self, args: list[str], cwd: str, environment: Mapping[str, str]
    ) -> automation.CommandResult:
        self._process = process = subprocess.Popen(
            [self.command, "--non-interactive", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={
                **inherited_environment(environment),
                **environment,
                # The engine starts the plugins that lie next to it.
                "PATH": f"{Path(self.command).parent}{os.pathsep}{os.environ.get('PATH', '')}",
                "PULUMI_AUTOMATION_API": "true",
            },
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        if self._is_interrupted:
            process.send_signal(signal.SIGINT)
        pressed = False
        while True:
            try:
                stdout, stderr = process.communicate()
                break
            except KeyboardInterrupt:
                pressed = True
                process.send_signal(signal.SIGINT)
        if pressed:
            raise KeyboardInterrupt
        result = automation.CommandResult(stdout=stdout, stderr=stderr, code=process.returncode)
        if result.code != 0:
            raise errors.create_command_error(result)
        return result


def inherited_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return our environment, without AWS credentials if `given` has some."""
    if not given.keys() & {"AWS_ACCESS_KEY_ID", URL}:
        return dict(os.environ)
    return {name: value for name, value in os.environ.items() if name not in _OTHER_CREDENTIALS}
