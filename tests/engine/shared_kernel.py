"""The kernel's log for a machine of the lab, from which systemd-nspawn hides it."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.agent.node.kernel_log import KMSG, KernelLog
from nodes.inventory import Inventory
from tests.engine.machines import on
from tests.labs import lab_for

_COPY = "root/kernel-log"
_INTERVAL_S = 0.05


@contextmanager
def kernel_log(there: Inventory, rank: int) -> Iterator[None]:
    """The machine can read what the kernel writes, until the block ends.

    A thread copies this machine's log into a file to which KMSG there is a link. Control groups get
    the names that the machine knows; process ids stay those of this machine.
    """
    lab, instance = lab_for("engine"), there.nodes[rank].instance_id
    above = re.compile(rf"(?<==)[^,\s]*/{re.escape(f'{lab.cgroup}/{instance}')}(?=/)")
    copy, over = lab.machines / instance / "root" / _COPY, threading.Event()
    log = KernelLog()
    copy.write_text("")

    def relay() -> None:
        with copy.open("a") as file:
            while not over.wait(_INTERVAL_S):
                file.writelines(f"6,0,0,-;{above.sub('', line)}\n" for line in log.lines())
                file.flush()

    relaying = threading.Thread(target=relay)
    relaying.start()
    try:
        on(there, rank, f"ln -s /{_COPY} {KMSG}")
        yield
    finally:
        over.set()
        relaying.join()
        log.close()
        copy.unlink()
        on(there, rank, f"rm {KMSG}")
