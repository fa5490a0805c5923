"""The user's own ssh to machines that they have: OpenSSH, with the user's settings and agent.

gpuctl asks it to run a script on a machine before the machine knows gpuctl's key, and asks it how
it reaches the machine (`ssh -G`).
"""

import asyncio
import os
import re
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from config.errors import NodeError
from nodes.answers import Completed
from nodes.identity import quoted_path

CONNECT_S = 15
LARGEST_ANSWER = 1 << 20
"""Bytes of a script's output: a job may be root on the machine, and could send without end."""

SSH_FAILED = 255
"""The exit status of ssh itself (ssh(1))."""

# sudo clears the environment, and the script needs to know the address at which the login has
# arrived.
_AS_ROOT_IF_POSSIBLE = """\
if [ "$(id -u)" != 0 ] && sudo -n true 2> /dev/null; then
  exec sudo -n env "SSH_CONNECTION=$SSH_CONNECTION" sh -s
fi
exec sh -s
"""


@dataclass(frozen=True)
class Login:
    """A machine as the user's ssh reaches it. What is None is as the user's settings say.

    Host keys have to be known; if `accepted` is a path, new ones are accepted and added to it, also
    those of machines to go through.
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
        return words + _accepted(self.accepted, "accept-new")


def _accepted(file: Path, new_keys: str) -> list[str]:
    """Return the options of ssh for host keys in the file too, and for those that are nowhere."""
    return _settings(
        {
            "StrictHostKeyChecking": new_keys,
            "UserKnownHostsFile": f"{quoted_path(file)} ~/.ssh/known_hosts ~/.ssh/known_hosts2",
            "HashKnownHosts": "no",
        }
    )


@dataclass(frozen=True)
class Route:
    """How ssh connects to a machine: its address, and a command in place of it, empty for none."""

    address: str
    port: int
    proxy: tuple[str, ...] = ()


async def run_script(login: Login, script: str, limit_s: float) -> Completed:
    """Run the script of sh on the machine: as root where the login is root or may call sudo.

    Raises NodeError when the machine cannot be reached or does not answer in `limit_s`.
    """
    options = _quiet()
    command = shlex.join(["sh", "-c", _AS_ROOT_IF_POSSIBLE])
    if login.accepted is not None and (proxy := (await route(login, "accept-new")).proxy):
        # ssh gives its own options to no machine that it goes through.
        options += _settings({"ProxyCommand": _escaped(proxy)})
        login = replace(login, jump=None)
    words = ["ssh", "-T", *options, *login.options, "--", login.address, command]
    done = await _execute(words, script, limit_s, login.address)
    if done.exit_status == SSH_FAILED:
        raise _unreached(login, done.stderr)
    return done


async def route(login: Login, new_keys: str = "yes") -> Route:
    """Return how the user's ssh connects to the machine; NodeError if its settings are wrong.

    `new_keys` is StrictHostKeyChecking for the machines to go through, where some are accepted.
    """
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
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        host_keys = _accepted(login.accepted, new_keys) if login.accepted else []
        proxy = _through(jump.split(","), target, host_keys)
    elif command != "none":
        marks = {"%": "%", "h": address, "p": str(port), "n": login.address, "r": settings["user"]}
        whole = re.sub("%([%hpnr])", lambda mark: marks[mark[1]], command)
        proxy = ("sh", "-c", f"exec {whole}")
    return Route(address, port, proxy)


def _through(jumps: Sequence[str], target: str, host_keys: Sequence[str]) -> tuple[str, ...]:
    """Return the command of ssh that connects to the target through these machines, in order."""
    *others, last = jumps
    words = ["ssh", *_quiet(), *host_keys]
    if others:
        words += _settings({"ProxyCommand": _escaped(_through(others, _TARGET, host_keys))})
    entrance = last if "://" in last else f"ssh://{last}"
    return (*words, "-W", target, "--", entrance)


_TARGET = "%h:%p"
"""Host and port to connect to, in a ProxyCommand: ssh writes the real ones (ssh_config(5))."""


def _escaped(command: Sequence[str]) -> str:
    """Return the command for ProxyCommand, where `%` begins what ssh replaces."""
    return shlex.join(word if word == _TARGET else word.replace("%", "%%") for word in command)


def _quiet() -> list[str]:
    """Return the options of an ssh that asks nobody and prints errors alone."""
    return _settings({"BatchMode": "yes", "ConnectTimeout": str(CONNECT_S), "LogLevel": "ERROR"})


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
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdin is not None
    streams = process.stdout, process.stderr
    try:
        async with asyncio.timeout(limit_s):
            out, complaints, _ = await asyncio.gather(
                _most(streams[0], process),
                _most(streams[1], process),
                _feed(process.stdin, stdin.encode()),
            )
            status = await process.wait()
    except TimeoutError:
        raise NodeError(f"{address} did not answer within {limit_s:g} s", _REACH) from None
    finally:
        if process.returncode is None:
            _kill(process)
            for stream in streams:  # `wait` waits for their ends
                await _most(stream, process)
            await process.wait()
    if max(len(out), len(complaints)) > LARGEST_ANSWER:
        raise NodeError(f"{address} answered more than {LARGEST_ANSWER >> 20} MiB", _REACH)
    return Completed(status, *(text.decode("utf-8", "replace") for text in (out, complaints)))


async def _most(stream: asyncio.StreamReader, process: asyncio.subprocess.Process) -> bytes:
    """Read the stream to its end, and return it; kill a process that sends more than it may."""
    whole = bytearray()
    while piece := await stream.read(1 << 16):
        if len(whole) <= LARGEST_ANSWER:
            whole += piece
        else:
            _kill(process)
    return bytes(whole)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill ssh, and what it has started for a jump: that has its standard error too."""
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):  # ssh ended before it read all, and its exit status says why
        stream.write(data)
        await stream.drain()
    stream.close()


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
