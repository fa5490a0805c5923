"""What ssh runs to reach a node through Session Manager."""

from operations.chosen_target import ChosenTarget
from provision.setup import session_manager


def become_session(chosen: ChosenTarget, instance: str) -> None:
    """Connect standard input and output with the ssh of an instance; this process becomes that."""
    session_manager.become_session(instance, chosen.target())
