"""The lab from outside: start, stop, status, and the target that gpuctl acts on."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from config.errors import LabError
from config.folders import state_home
from config.progress import Progress, Reporter
from config.target import Target
from lab import (
    amis,
    cgroups,
    image,
    leftovers,
    network,
    prerequisites,
    session_manager_plugin,
    state,
)

START_SECONDS = 60.0
"""How long the daemon may take to be ready; images are there before it starts."""

STOP_SECONDS = 60.0
"""How long the daemon may take to remove everything before it is killed."""

_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "lab",
    "AWS_SECRET_ACCESS_KEY": "lab",  # the lab checks none
    # boto3 must never look for others: the address it asks for them belongs to no lab.
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class LabStatus:
    """Whether the lab is up, and where. `machines` are the instance ids that have a machine."""

    up: bool
    pid: int | None = None
    api_url: str | None = None
    provider_address: str | None = None
    machines: tuple[str, ...] = ()
    since: str | None = None


def start(report: Reporter) -> LabStatus:
    """The lab is up; nothing happens when it was. Two starts at once are fine.

    Prerequisites are checked, what a crashed lab left is removed, images are made when they are
    not in the cache. LabError when it cannot be.
    """
    prerequisites.require("the lab cannot start")
    with state.changing():
        if state.record() is None:
            _end_daemon()  # one that never got ready
            _step(report, "leftovers", leftovers.clear)
            for flavour in image.OF_THE_LAB:
                image.ensure_image(flavour, report)
            with _timed(report, "daemon"):
                _start_daemon()
    return status()


def ensure_image(ami: str, region: str, report: Reporter) -> None:
    """Machines of the AMI can boot: its image is made when it is not in the cache (LabError)."""
    if flavour := amis.flavour(ami, region):
        image.ensure_image(flavour, report)


def stop(report: Reporter) -> None:
    """Nothing of the lab is left: machines, network, daemon, and the state of its clusters.

    The history of runs stays, and the daemon's log. Fine when the lab is down.
    """
    with state.changing():
        with _timed(report, "daemon"):
            _end_daemon()
        _step(report, "leftovers", leftovers.clear)
        for path in (state.RECORD, state.CAPACITY, state.FAULTS):
            path.unlink(missing_ok=True)
        for folder in ("clusters", "pulumi"):
            shutil.rmtree(_state() / folder, ignore_errors=True)


def status() -> LabStatus:
    """What is there now."""
    record = state.record()
    if record is None:
        return LabStatus(up=False)
    return LabStatus(
        up=True,
        pid=record.pid,
        api_url=record.api_url,
        provider_address=record.provider_address,
        machines=cgroups.machines(),
        since=record.since,
    )


def target(region: str, backend: str | None = None) -> Target:
    """The lab as a target; LabError when it is down."""
    record = state.record()
    if record is None:
        raise LabError("the lab is not running", "start it with `gpuctl lab start`")
    return Target(
        name="lab",
        region=region,
        state=_state(),
        endpoint=record.api_url,
        environment=dict(_CREDENTIALS),
        provider_address=record.provider_address,
        caller_address=network.HOST_ADDRESS,
        session_plugin=(sys.executable, session_manager_plugin.__file__),
        backend=backend,
    )


def _state() -> Path:
    return state_home() / "lab"


def _start_daemon() -> None:
    """The daemon says that it is ready; LabError with its reason when it cannot be."""
    state.LOG.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with state.LOG.open("w") as log, os.fdopen(reading) as answers:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "lab.daemon", "--ready-fd", str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(),
            cwd=Path(__file__).parents[1],  # where `lab` is found, installed or not
            pass_fds=(writing,),
            start_new_session=True,  # it outlives this terminal and its Ctrl-C
        )
        os.close(writing)
        try:
            answer = _answer(answers)
        except BaseException:
            daemon.terminate()
            daemon.wait()
            raise
    # It is nobody's child to wait for: this command ends, the daemon stays.
    daemon.returncode = 0
    if answer:
        raise LabError(f"the lab did not start: {answer['message']}", answer["hint"])


def _answer(answers: IO[str]) -> dict[str, str]:
    if not select.select([answers], [], [], START_SECONDS)[0]:
        raise LabError(f"the lab was not ready after {START_SECONDS:.0f} s", f"see {state.LOG}")
    line = answers.readline()
    if not line:
        last = (state.LOG.read_text().strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"the lab's daemon ended at once: {last}", f"see {state.LOG}")
    answer: dict[str, str] = json.loads(line)
    return answer


def _environment() -> dict[str, str]:
    """The daemon's environment: nobody's AWS credentials or profile."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return {**kept, **_CREDENTIALS, "AWS_CONFIG_FILE": os.devnull}


def _end_daemon() -> None:
    """The daemon is gone, with all that it had; killed when it takes too long."""
    pid = state.daemon_pid()
    if pid is None:
        return
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], STOP_SECONDS)[0]:
                with suppress(ChildProcessError):  # only where this process started it
                    os.waitid(os.P_PIDFD, process, os.WEXITED | os.WNOHANG)
                return
    except ProcessLookupError:
        return
    finally:
        os.close(process)


def _step(report: Reporter, subject: str, action: Callable[[], tuple[str, ...]]) -> None:
    with _timed(report, subject) as said:
        said.extend(action())


@contextmanager
def _timed(report: Reporter, subject: str) -> Iterator[list[str]]:
    """Progress of one step; what is put into the list is shown when it is done."""
    began, said = time.monotonic(), list[str]()
    report(Progress("lab", subject, "start"))
    try:
        yield said
    except BaseException:
        report(Progress("lab", subject, "failed", seconds=time.monotonic() - began))
        raise
    report(Progress("lab", subject, "done", ", ".join(said), time.monotonic() - began))
