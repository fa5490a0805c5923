"""`gpuctl attach` does what `gpuctl run` did: the run's ports, equal lines folded."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_attach import detached, gpuctl  # noqa: F401  a fixture
from tests.cli.test_run import cluster, gpuctl_run  # noqa: F401  fixtures
from tests.engine.session.test_session import connections  # noqa: F401

pytestmark = pytest.mark.usefixtures("cluster")


def test_attach_forwards_the_runs_ports_and_folds_equal_lines(
    detached: Callable[..., str],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, ssh = tmp_path / "go", tmp_path / "bin" / "ssh"
    name = detached(f"until test -e {go}; do sleep 0.1; done; echo equal", ports=["*:8888"])
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/bash\necho "$*" > {tmp_path}/said\ntouch {go}\nexec sleep infinity\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    lines = gpuctl("attach", name, "--fold").stdout.splitlines()
    (port,) = [line.removeprefix("-- port 8888 of node0: http://localhost:") for line in lines[:1]]
    words = (tmp_path / "said").read_text().split()
    assert words[-2:] == [f"127.0.0.1:{port}:localhost:8888", "node0"]
    assert "node[0-1] equal" in lines
    again = gpuctl("attach", name, "--fold").stdout.splitlines()  # when it is over
    assert "node[0-1] equal" in again
