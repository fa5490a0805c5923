"""Ssh agents of people who use a cluster from their own machines."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ssh_agent(socket: Path, key: Path) -> Iterator[None]:
    """An ssh agent with the key, while the block runs."""
    command = ["ssh-agent", "-D", "-a", str(socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()  # the socket is there
        try:
            subprocess.run(["ssh-add", "-q", str(key)], check=True)
            yield
        finally:
            agent.terminate()
