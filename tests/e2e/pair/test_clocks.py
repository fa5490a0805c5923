"""Clocks of machines that are set while a run goes on."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, read_until, run_file
from tests.e2e.machines import Machines

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

SOURCE = Path(__file__).with_name("settable_clock.c")
COMPILE = ("gcc", "-O2", "-Wall", "-fno-builtin", "-shared", "-fPIC", "-nostdlib")
LIBRARY = "usr/local/lib/settable_clock.so"
ERROR = "/run/clock-error"
"""The file on a machine with the seconds by which its clock is wrong."""


@contextmanager
def settable_clocks(gpuctl: Gpuctl, cluster: str, folder: Path) -> Iterator[None]:
    """New processes of both nodes have the clock that the file ERROR sets, until the block ends."""
    built = folder / "library"
    subprocess.run([*COMPILE, "-o", str(built), str(SOURCE)], check=True)
    of = Machines(gpuctl, cluster)
    roots = [gpuctl.lab.machines / of.instance_of(f"node{n}") / "root" for n in range(2)]
    before = [(root / "etc/ld.so.preload").read_text() for root in roots]
    for root, preloaded in zip(roots, before, strict=True):
        (root / LIBRARY).write_bytes(built.read_bytes())
        (root / "etc/ld.so.preload").write_text(f"{preloaded.rstrip()}\n/{LIBRARY}\n")
    try:
        yield
    finally:
        for root, preloaded in zip(roots, before, strict=True):
            (root / "etc/ld.so.preload").write_text(preloaded)
            (root / LIBRARY).unlink()
        gpuctl("--lab", "exec", cluster, "--", f"rm -f {ERROR}")


def test_nodes_whose_clocks_are_set_are_named_and_the_run_goes_on(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    commands = [
        "before=$(date +%s)",
        f"test $GPUCTL_NODE_RANK = 0 || echo -3600 > {ERROR}",
        "until test -e /tmp/seen-1; do sleep 0.2; done",
        f"test $GPUCTL_NODE_RANK = 1 || echo 7200 > {ERROR}",
        "until test -e /tmp/seen-0; do sleep 0.2; done",
        'test $(($(date +%s) - before)) -lt 0 && echo "earlier" || echo "later"',
    ]
    limits = {"max_duration": "2m", "no_output_timeout": "2m"}
    file = run_file(tmp_path, "clocks", commands, **limits)
    with (
        settable_clocks(gpuctl, cluster, tmp_path),
        gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process,
    ):
        warned = []
        for rank in (1, 0):
            warned.append(read_until(process, "-- warning: ")[-1])
            gpuctl("--lab", "exec", cluster, "--", f"touch /tmp/seen-{rank}")
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, rest
    assert warned == [
        "-- warning: node1's clock was set back by 3600 s\n",
        "-- warning: node0's clock was set forward by 7200 s\n",
    ]
    assert {"[node0] later", "[node1] earlier"} <= set(rest.splitlines())
    assert "run done" in rest
