"""People who use a cluster from their own machines, with ssh agents."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.conftest import Gpuctl


def a_colleague(gpuctl: Gpuctl, cluster: str, home: Path) -> Gpuctl:
    """The command with another state folder, in which the cluster has no private key."""
    known = gpuctl.state / "clusters" / cluster
    colleague = Gpuctl(home, gpuctl.lab)
    there = colleague.state / "clusters" / cluster
    there.mkdir(parents=True)
    for name in ("cluster.json", "inventory.json", "known_hosts"):
        shutil.copy(known / name, there)
    return colleague


@contextmanager
def ssh_agent(socket: Path, key: Path) -> Iterator[None]:
    """An ssh agent with the key, while the block runs."""
    command = ["ssh-agent", "-D", "-a", str(socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()  # the socket is there
        try:
            environment = os.environ | {"SSH_AUTH_SOCK": str(socket)}
            subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True)
            yield
        finally:
            agent.terminate()
