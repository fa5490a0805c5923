"""The lab: an AWS region on this machine, to rehearse in."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from config.errors import InputError
from lab import leftovers as lab_leftovers
from lab import lifecycle, prerequisites
from lab.images.image import FLAVOURS, ensure_image
from lab.lifecycle import LabStatus
from lab.prerequisites import INSTALL_EXTRA
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher

__all__ = ["INSTALL_EXTRA", "LabStatus"]


@dataclass(frozen=True)
class Labs:
    """The chosen lab as it is, and the others of this machine that run."""

    name: str
    is_default: bool
    chosen: LabStatus
    others: tuple[LabStatus, ...]


def start(chosen: ChosenTarget, *, watcher: Watcher = LoggingWatcher()) -> Labs:
    """Start the lab if it is down; remove first what a crashed lab left."""
    lifecycle.start(chosen.chosen_lab, watcher.report)
    return status(chosen)


def stop(chosen: ChosenTarget, *, every: bool = False, watcher: Watcher = LoggingWatcher()) -> Labs:
    """Stop the lab, or every lab of this machine, and remove all that it added to this machine."""
    for lab in lifecycle.present() if every else (chosen.chosen_lab,):
        lifecycle.stop(lab, watcher.report)
    return status(chosen)


def status(chosen: ChosenTarget) -> Labs:
    """Return whether the lab runs, with its machines, and the other labs."""
    lab = chosen.chosen_lab
    own, others = lifecycle.status(lab), tuple(lifecycle.others(lab))
    return Labs(lab.name, lab.is_default, own, others)


def leftovers(chosen: ChosenTarget) -> tuple[str, ...]:
    """Return what a lab that is down has left on this machine."""
    return tuple(lab_leftovers.find(chosen.chosen_lab))


def images(
    flavours: Collection[str] = (), *, watcher: Watcher = LoggingWatcher()
) -> dict[str, Path]:
    """Make the images that there are not yet, by default of all flavours; return their paths."""
    if unknown := sorted(set(flavours) - set(FLAVOURS)):
        raise InputError(f"no image {unknown[0]!r}", f"images are: {', '.join(FLAVOURS)}")
    prerequisites.require("images cannot be made")
    return {
        flavour: ensure_image(flavour, watcher.report)
        for flavour in FLAVOURS
        if not flavours or flavour in flavours
    }
