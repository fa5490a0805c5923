"""The agent's commands: each names a function of its module."""

from importlib import import_module

import pytest

from engine.agent.main import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_a_function(command: str) -> None:
    module, function = COMMANDS[command]
    assert callable(getattr(import_module(f"engine.agent.{module}"), function))
