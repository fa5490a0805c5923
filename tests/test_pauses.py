"""The pauses of `python -m tests.pauses`: processes stand still, and then go on."""

import os
import select
import subprocess
from pathlib import Path

import pytest

from tests.pauses import descendants, freezer

pytestmark = pytest.mark.lab  # control groups need root


def test_a_held_process_does_nothing_and_then_goes_on() -> None:
    with subprocess.Popen("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        assert cat.pid in descendants(os.getpid())
        groups = Path(f"/proc/{cat.pid}/cgroup")
        with freezer() as cold:
            with cold.hold([cat.pid]):
                cat.stdin.write(b"said while it is held\n")
                cat.stdin.flush()
                assert select.select([cat.stdout], [], [], 0.5)[0] == []
            assert cat.stdout.readline() == b"said while it is held\n"
            assert cold.group.name not in groups.read_text()
            with cold.hold([10**9]):  # it has ended
                pass
        assert not cold.group.exists()
        cat.stdin.close()
