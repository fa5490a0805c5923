"""The lab of the Python API: an AWS region on this machine."""

from collections.abc import Collection, Sequence
from pathlib import Path

from gpuctl.calls import api_call, caller_of
from operations import lab, lab_faults
from operations.lab import Labs
from operations.lab_faults import Faults
from operations.watcher import LoggingWatcher, Watcher

__all__ = ["Lab"]


class Lab:
    """A lab of this machine; `gpuctl.up(…, lab=True)` starts the default one by itself.

    As a context manager it is started, and stopped at the end of the block.
    """

    def __init__(self, name: str | None = None, *, watcher: Watcher = LoggingWatcher()) -> None:
        """Name the lab; without a name it is the default one."""
        caller = caller_of({"lab": name or True, "watcher": watcher})
        self._chosen, self._watcher = caller.target, caller.watcher
        self.name = self._chosen.chosen_lab.name

    def __enter__(self) -> "Lab":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @api_call
    def start(self) -> Labs:
        """Start the lab if it is down."""
        return lab.start(self._chosen, watcher=self._watcher)

    @api_call
    def stop(self, *, every: bool = False) -> Labs:
        """Stop the lab, or every lab, and remove all that it added to this machine."""
        return lab.stop(self._chosen, every=every, watcher=self._watcher)

    @api_call
    def status(self) -> Labs:
        """Return whether the lab runs, with its machines, and the other labs."""
        return lab.status(self._chosen)

    @api_call
    def leftovers(self) -> tuple[str, ...]:
        """Return what a lab that is down has left on this machine."""
        return lab.leftovers(self._chosen)

    @api_call
    def images(self, flavours: Collection[str] = ()) -> dict[str, Path]:
        """Make the images that are missing; return the paths of all."""
        return lab.images(flavours, watcher=self._watcher)

    @api_call
    def faults(self) -> Faults:
        """Return the faults that are set."""
        return lab_faults.current(self._chosen)

    @api_call
    def set_fault(self, name: str, arguments: Sequence[str] = ()) -> Faults:
        """Let the lab answer with an error of AWS, as `gpuctl lab fault`; return all faults."""
        return lab_faults.set_fault(self._chosen, name, arguments)

    @api_call
    def clear_faults(self, names: Collection[str] = ()) -> Faults:
        """Clear these faults, by default all; return those that are left."""
        return lab_faults.clear(self._chosen, names)
