"""`gpuctl ssh-config`: it asks before it changes the user's settings, and says what it made."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.target import Target
from nodes.openssh import hosts_file, user_config
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory


@pytest.fixture
def home(remembered: Target) -> Path:
    remember(make_inventory(2), remembered)
    return Path.home()


def test_hosts_are_added_once_and_removed(home: Path) -> None:
    line = f'Include "{home}/.ssh/gpuctl/*.conf"'
    refused = CliRunner().invoke(app, ["ssh-config", "demo"])
    assert str(refused.exception) == (
        f"there is no terminal to ask on: Write `{line}` as the first line of {home}/.ssh/config?;"
        " add --yes if that is what you want"
    )
    assert not (home / ".ssh").exists()
    done = CliRunner().invoke(app, ["ssh-config", "demo", "--yes"])
    names = "demo-node0, demo-node1, demo-bastion"
    assert done.output == (
        f"{hosts_file('demo')} has {names}: try `ssh demo-node0`\n"
        "VS Code and Cursor: `code --remote ssh-remote+demo-node0 DIR`,"
        " `cursor --remote ssh-remote+demo-node0 DIR`\n"
    )
    assert user_config().read_text() == f"{line}\n"
    # The line is there now: nobody is asked.
    again = CliRunner().invoke(app, ["ssh-config", "demo", "--json"])
    assert json.loads(again.output) == {
        "file": str(hosts_file("demo")),
        "config": str(user_config()),
        "hosts": ["demo-node0", "demo-node1", "demo-bastion"],
    }
    assert user_config().read_text() == f"{line}\n"
    gone = CliRunner().invoke(app, ["ssh-config", "demo", "--remove"])
    assert gone.output == f"{hosts_file('demo')} is removed\n"
    nothing = CliRunner().invoke(app, ["ssh-config", "demo", "--remove"])
    assert nothing.output == f"demo has no hosts in {hosts_file('demo')}\n"
