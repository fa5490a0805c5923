"""A host of its own for tests of what a lab does to the whole host."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_ENTER = """
set -e
resolvers=$(cat /etc/resolv.conf)
for former in /run /run/netns; do
  while umount --recursive --lazy $former 2> /dev/null; do :; done
done
mount -t tmpfs tmpfs /run
file=$(readlink -m /etc/resolv.conf)  # often a link into /run
[ -e "$file" ] || { mkdir -p "$(dirname "$file")"; echo "$resolvers" > "$file"; }
exec "$@"
"""


def on_its_own_host(test: Callable[[], None]) -> Callable[[], None]:
    """Run the test in a process with a network, mounts and /run that no other test sees."""
    call = f"from {test.__module__} import {test.__name__} as test; test.__wrapped__()"

    @functools.wraps(test)
    def run() -> None:
        own = ("unshare", "--net", "--mount", "--propagation=private")
        done = subprocess.run(
            [*own, "sh", "-c", _ENTER, "sh", sys.executable, "-c", call],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


NOBODY = 65534


def connects_as(user: int, address: str, port: int) -> bool:
    """Whether a connection of this user comes about. bash: all users may read it."""
    connect = f"exec 3<> /dev/tcp/{address}/{port}"
    become = ("setpriv", f"--reuid={user}", "--clear-groups")
    done = subprocess.run([*become, "bash", "-c", connect], capture_output=True, check=False)
    return done.returncode == 0
