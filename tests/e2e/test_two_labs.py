"""Two labs side by side: the same cluster in both, and neither knows of the other."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file
from tests.labs import lab_for

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.thorough]

# The signed list of the lists alone: reading them all takes 5 s of a processor. Without Error-Mode
# apt-get ends well where nothing came.
DOWNLOADS = (
    "apt-get -qq update -o APT::Update::Error-Mode=any -o Acquire::Languages=none"
    " -o Acquire::IndexTargets::deb::Packages::DefaultEnabled=false && echo came through"
)


@contextmanager
def lab(name: str, home: Path) -> Iterator[Gpuctl]:
    """A lab of this test; nothing of it is left."""
    gpuctl = Gpuctl(home, lab_for(name))
    gpuctl("lab", "stop")
    try:
        yield gpuctl
    finally:
        gpuctl("lab", "stop")
    assert gpuctl("lab", "status", "--leftovers") == ""


def test_the_same_cluster_lives_in_two_labs(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "same", nodes=1, instance_type="c6i.large")
    with ExitStack() as labs:
        first, second = (labs.enter_context(lab(name, tmp_path)) for name in ("one", "two"))
        instances = []
        for gpuctl in (first, second):
            gpuctl("--lab", "up", str(file), "--yes")
            (cluster,) = gpuctl.json("--lab", "status")
            (node,) = cluster["nodes"]
            instances.append(node["instance_id"])
            # the same range, and so the same address
            assert node["private_ip"] == "10.213.128.4"
        assert len(set(instances)) == 2
        for gpuctl, other in ((first, second), (second, first)):
            assert "came through" in gpuctl("--lab", "exec", "same", "--", DOWNLOADS)
            shown = gpuctl("lab", "status")
            assert shown.startswith(f"Lab {gpuctl.lab.name} is up: API http://127.0.0.1:")
            assert f"\nAlso up: lab {other.lab.name}: API http://127.0.0.1:" in shown
        (machine,) = (m for m in first.json("lab", "status")["machines"] if m == instances[0])
        assert machine not in second.json("lab", "status")["machines"]

        first("lab", "stop")
        assert first("lab", "status").startswith(f"Lab {first.lab.name} is down.\n")
        assert "came through" in second("--lab", "exec", "same", "--", DOWNLOADS)
        assert [c["name"] for c in second.json("--lab", "status")] == ["same"]
        first("--lab", "up", str(file), "--yes")
        assert "came through" in first("--lab", "exec", "same", "--", DOWNLOADS)
        second("--lab", "down", "same", "--yes")
        assert second("--lab", "status") == "No cluster exists.\n"
        assert [c["name"] for c in first.json("--lab", "status")] == ["same"]
