"""A lab from outside: start, stop, status, and the target that gpuctl acts on.

Several labs run side by side, each in its own `Places`.
"""

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

from config.bucket import bucket_of
from config.errors import LabError
from config.progress import Progress, Reporter
from config.target import Target
from lab import amis, leftovers, prerequisites, session_manager_plugin, state
from lab.images import image
from lab.machines import cgroups
from lab.network import bridge
from lab.places import DEFAULT, Places, everywhere, make_private

START_SECONDS = 180.0
"""How long the daemon may take to be ready; images are there before it starts."""

STOP_SECONDS = 60.0
"""How long the daemon may take to remove everything before it is killed."""


@dataclass(frozen=True)
class LabStatus:
    """Whether a lab is up, and where. `machines` are the instance ids that have a machine."""

    up: bool
    name: str = DEFAULT
    pid: int | None = None
    api_url: str | None = None
    provider_address: str | None = None
    machines: tuple[str, ...] = ()
    since: str | None = None


def start(places: Places, report: Reporter) -> LabStatus:
    """Start the lab; nothing happens when it is up. Two starts at once are fine.

    Prerequisites are checked, what a crashed lab left is removed, images are made when they are
    not in the cache. LabError when it cannot be.
    """
    prerequisites.require("the lab cannot start")
    with state.changing(places):
        if state.record(places) is None:
            _end_daemon(places)  # one that never got ready
            _step(report, "leftovers", lambda: leftovers.clear(places))
            for flavour in image.OF_THE_LAB:
                image.ensure_image(flavour, report)
            with _timed(report, "daemon"):
                _start_daemon(places)
    return status(places)


def ensure_image(ami: str, region: str, report: Reporter) -> None:
    """Make the image of the AMI if it is not in the cache, so that machines can boot (LabError)."""
    if flavour := amis.flavour(ami, region):
        image.ensure_image(flavour, report)


def stop(places: Places, report: Reporter) -> None:
    """Remove all of the lab: machines, network, daemon, and the state of its clusters.

    The history of runs stays, and the daemon's log; so do other labs. Fine when the lab is down.
    """
    with state.changing(places):
        with _timed(report, "daemon"):
            _end_daemon(places)
        _step(report, "leftovers", lambda: leftovers.clear(places))
        for path in (places.record, places.capacity, places.faults):
            path.unlink(missing_ok=True)
        for folder in ("clusters", "pulumi"):
            shutil.rmtree(places.state / folder, ignore_errors=True)  # its next start clears it
        if not places.is_default:
            for empty in (places.machines, places.file_systems, places.disk):
                with suppress(OSError):  # not there
                    empty.rmdir()


def status(places: Places) -> LabStatus:
    """Return what exists now of the lab."""
    record = state.record(places)
    if record is None:
        return LabStatus(up=False, name=places.name)
    return LabStatus(
        up=True,
        name=places.name,
        pid=record.pid,
        api_url=record.api_url,
        provider_address=record.provider_address,
        machines=cgroups.machines(places),
        since=record.since,
    )


def others(places: Places) -> tuple[LabStatus, ...]:
    """Return the labs of this machine that are up besides this one, by name."""
    statuses = (status(lab) for lab in everywhere() if lab != places)
    return tuple(lab for lab in statuses if lab.up)


def present() -> tuple[Places, ...]:
    """Return the default lab and every other that is up or has left something."""
    return tuple(
        lab
        for lab in everywhere()
        if lab.is_default or state.daemon_pid(lab) or bridge.of(lab) or leftovers.find(lab)
    )


def target(places: Places, region: str, backend: str | None = None) -> Target:
    """Return the lab as a target; LabError when it is down.

    A bucket that `backend` names is made if it does not exist: no command of the lab makes buckets.
    """
    record, net = state.record(places), bridge.of(places)
    if record is None or net is None:
        start = places.command("start")
        raise LabError("the lab is not running", f"start it with `{start}`")
    if (bucket := bucket_of(backend)) is not None and not bucket.endpoint:
        # boto3, for a shared backend alone.
        from lab.buckets import make_bucket  # noqa: PLC0415

        make_bucket(bucket.name, record.api_url, record.key)
    return Target(
        name="lab",
        region=region,
        state=places.state,
        endpoint=record.api_url,
        environment=record.key.environment,
        provider_address=record.provider_address,
        caller_address=net.slot.host_address,
        vpcs_are_isolated=True,
        session_plugin=(sys.executable, session_manager_plugin.__file__, places.namespace),
        backend=backend,
    )


def _start_daemon(places: Places) -> None:
    """Start the daemon and wait until it is ready; LabError with its reason when it cannot be."""
    make_private(places.runtime)
    reading, writing = os.pipe()
    with places.log.open("w") as log, os.fdopen(reading) as answers:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "lab.daemon", "--lab", places.name, "--ready-fd", str(writing)],
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
            answer = _answer(answers, places.log)
        except BaseException:
            daemon.terminate()
            daemon.wait()
            raise
    # It is nobody's child to wait for: this command ends, the daemon stays.
    daemon.returncode = 0
    if answer:
        raise LabError(f"the lab did not start: {answer['message']}", answer["hint"])


def _answer(answers: IO[str], log: Path) -> dict[str, str]:
    if not select.select([answers], [], [], START_SECONDS)[0]:
        raise LabError(f"the lab was not ready after {START_SECONDS:.0f} s", f"see {log}")
    line = answers.readline()
    if not line:
        last = (log.read_text().strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"the lab's daemon ended at once: {last}", f"see {log}")
    answer: dict[str, str] = json.loads(line)
    return answer


def _environment() -> dict[str, str]:
    """Return the daemon's environment, without anybody's AWS credentials or profile."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    files = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**kept, **files, "AWS_EC2_METADATA_DISABLED": "true"}


def _end_daemon(places: Places) -> None:
    """End the daemon with all that it has; kill it when it takes too long."""
    pid = state.daemon_pid(places)
    if pid is None:
        return
    if pid == state.OUTSIDE:
        raise LabError(
            f"the daemon of the lab '{places.name}' runs outside of this container",
            "stop the lab where it was started",
        )
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
    """Report the progress of one step; its end shows what was put into the list."""
    began, said = time.monotonic(), list[str]()
    report(Progress("lab", subject, "start"))
    try:
        yield said
    except BaseException:
        report(Progress("lab", subject, "failed", seconds=time.monotonic() - began))
        raise
    report(Progress("lab", subject, "done", ", ".join(said), time.monotonic() - began))
