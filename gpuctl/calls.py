"""What the calls of the Python API share: their target, their watcher, and event loops."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import ParamSpec, TypedDict, TypeVar

from config.duration import given_duration
from config.files import disk_errors
from config.folders import state_home
from config.settings import export_state
from operations.chosen_target import DEFAULT_LAB, ChosenTarget, Places, choose
from operations.watcher import LoggingWatcher, Watcher

P = ParamSpec("P")
T = TypeVar("T")

_LOGGER = logging.getLogger("gpuctl")


class TargetOptions(TypedDict, total=False):
    """Where a call acts, and who sees its progress; by default AWS, and Python's `logging`.

    `lab` is True for the lab, or the name of a lab. `region`, `profile` (of AWS) and `backend` (a
    team's bucket) are by default those of the user's settings. `watcher` gets progress, notes and
    warnings.
    """

    lab: bool | str
    region: str | None
    profile: str | None
    backend: str | None
    watcher: Watcher


@dataclass(frozen=True)
class Caller:
    """The target of calls, and the watcher of their progress."""

    target: ChosenTarget
    watcher: Watcher


def caller_of(options: TargetOptions) -> Caller:
    """Return the target and the watcher of a call with these options."""
    export_state()
    lab = options.get("lab", False)
    places = Places(lab if isinstance(lab, str) else DEFAULT_LAB) if lab else None
    target = choose(places, options.get("region"), options.get("profile"), options.get("backend"))
    # A command's umask keeps its files to their owner. The umask of this process is not gpuctl's,
    # so the folders that have the files are closed instead.
    for folder in (state_home(), target.state):
        with suppress(OSError):  # an operation that writes there reports it; others need no folder
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Caller(target, options.get("watcher") or LoggingWatcher())


def api_call(function: Callable[P, T]) -> Callable[P, T]:
    """Let the function work where an event loop runs, as in a notebook: in another thread.

    Operations run event loops, and Python runs one a thread. Ctrl-C ends only the wait for that
    thread. A full disk, or one that cannot be written, is a StateError.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with disk_errors():
            if not _runs_event_loop():
                return function(*args, **kwargs)
            return _call_in_thread(lambda: function(*args, **kwargs), function.__name__)

    return call


def _runs_event_loop() -> bool:
    """Return whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _call_in_thread(function: Callable[[], T], name: str) -> T:
    results, errors = list[T](), list[BaseException]()

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # raised again by the caller's thread
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name=f"gpuctl {name}", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        _LOGGER.warning("interrupted; gpuctl's call `%s` goes on in its thread", name)
        raise
    if errors:
        raise errors[0]
    return results[0]


def seconds_of(duration: str | timedelta, argument: str) -> int:
    """Return the seconds of `30m` or of a timedelta; InputError, which names the argument."""
    if isinstance(duration, timedelta):
        return int(duration.total_seconds())
    return given_duration(duration, argument, "30m, 8h or 2d")
