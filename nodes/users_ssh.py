"""The user's own ssh to machines that they have: OpenSSH, with the user's settings and agent.

gpuctl asks it to run a script on a machine before the machine knows gpuctl's key, and asks it how
it reaches the machine (`ssh -G`).
"""

import asyncio
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from config.errors import NodeError
from nodes.answers import Completed
from nodes.identity import quoted_path

CONNECT_S = 15
SSH_FAILED = 255
"""The exit status of ssh itself (ssh(1))."""

# $1 is the script's shell. sudo clears the environment, and the script needs to know the address
# at which the login has arrived.
_AS_ROOT = """\
if [ "$(id -u)" = 0 ]; then exec sh -s; fi
command -v sudo > /dev/null || { echo 'the user is not root, and there is no sudo' >&2; exit 1; }
exec sudo -n env "SSH_CONNECTION=$SSH_CONNECTION" sh -s
"""


@dataclass(frozen=True)
class Login:
    """A machine as the user's ssh reaches it. What is None is as the user's settings say.

    Host keys have to be known; if `accepted` is a path, new ones are accepted and added to it.
    """

    address: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    jump: str | None = None
    accepted: Path | None = None

    @property
    def options(self) -> list[str]:
        """Return the options of ssh."""
        given = {"-l": self.user, "-p": self.port, "-i": self.identity, "-J": self.jump}
        words = [word for name, value in given.items() if value for word in (name, str(value))]
        if self.accepted is None:
            return words + _settings({"StrictHostKeyChecking": "yes"})
        files = f"{quoted_path(self.accepted)} ~/.ssh/known_hosts ~/.ssh/known_hosts2"
        return words + _settings(
            {
                "StrictHostKeyChecking": "accept-new",
                "UserKnownHostsFile": files,
                "HashKnownHosts": "no",
            }
        )


@dataclass(frozen=True)
class Route:
    """How ssh connects to a machine: its address, and a command in place of it, empty for none."""

    address: str
    port: int
    proxy: tuple[str, ...] = ()


async def run_as_root(login: Login, script: str, limit_s: float) -> Completed:
    """Run the script of sh on the machine as root: by the login itself, or by sudo.

    Raises NodeError when the machine cannot be reached or does not answer in `limit_s`.
    """
    options = _settings({"BatchMode": "yes", "ConnectTimeout": str(CONNECT_S), "LogLevel": "ERROR"})
    command = shlex.join(["sh", "-c", _AS_ROOT])
    done = await _execute(
        ["ssh", "-T", *options, *login.options, "--", login.address, command],
        script,
        limit_s,
        login.address,
    )
    if done.exit_status == SSH_FAILED:
        raise _unreached(login, done.stderr)
    return done


async def route(login: Login) -> Route:
    """Return how the user's ssh connects to the machine; NodeError if its settings are wrong."""
    words = ["ssh", "-G", *login.options, "--", login.address]
    done = await _execute(words, "", CONNECT_S, login.address)
    if done.exit_status != 0:
        raise NodeError(f"{login.address}: {done.complaint}", "correct your ~/.ssh/config")
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    settings = {name: value for name, _, value in lines}
    address, port = settings["hostname"], int(settings["port"])
    jump, command = settings.get("proxyjump", "none"), settings.get("proxycommand", "none")
    proxy: tuple[str, ...] = ()
    if jump != "none":
        proxy = _through(jump, address, port)
    elif command != "none":
        marks = {"%": "%", "h": address, "p": str(port), "n": login.address, "r": settings["user"]}
        whole = re.sub("%([%hpnr])", lambda mark: marks[mark[1]], command)
        proxy = ("sh", "-c", f"exec {whole}")
    return Route(address, port, proxy)


def _through(jump: str, address: str, port: int) -> tuple[str, ...]:
    """Return the command that ssh runs for a ProxyJump: through all but the last, from the last."""
    *others, last = jump.split(",")
    target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    through = ("-J", ",".join(others)) if others else ()
    options = _settings({"BatchMode": "yes", "ConnectTimeout": str(CONNECT_S)})
    entrance = last if "://" in last else f"ssh://{last}"
    return ("ssh", *options, *through, "-W", target, "--", entrance)


def _settings(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


async def _execute(words: list[str], stdin: str, limit_s: float, address: str) -> Completed:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except FileNotFoundError:
        raise NodeError("there is no `ssh` on this machine", "install OpenSSH's client") from None
    try:
        async with asyncio.timeout(limit_s):
            out, complaints = await process.communicate(stdin.encode())
    except TimeoutError:
        raise NodeError(f"{address} did not answer within {limit_s:g} s", _REACH) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Completed(
        process.returncode, *(text.decode("utf-8", "replace") for text in (out, complaints))
    )


_REACH = "see whether `ssh` reaches it from this machine"


def _unreached(login: Login, complaints: str) -> NodeError:
    """Return the error for ssh's own failure, with what to do about it."""
    address = login.address
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    last = lines[-1] if lines else "ssh gave no reason"
    if "IDENTIFICATION HAS CHANGED" in complaints:
        remedy = "somebody may be in between; if the machine was installed anew, remove its old key"
        command = shlex.join(["ssh-keygen", "-R", address])
        return NodeError(f"{address} shows another host key than before", f"{remedy}: `{command}`")
    if "Host key verification failed" in complaints:
        remedy = "log in once with `ssh`, or add --accept-new-host-keys"
        return NodeError(f"the host key of {address}, or of a jump to it, is not known", remedy)
    if "Permission denied" in last:
        remedy = "see that `ssh` logs in without a question: gpuctl uses your keys and your agent"
        return NodeError(f"{address} refused the login: {last}", remedy)
    return NodeError(f"{address} cannot be reached: {last}", _REACH)
