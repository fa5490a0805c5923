"""Four machines that people have, with the real frameworks: one dies, is left out, and returns."""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import read_until
from tests.e2e.test_modes import said
from tests.hosts.test_own_machines import Person, differences, hosts_file, run_file, trees
from tests.lab.conftest import Boot

pytestmark = [
    pytest.mark.lab,
    pytest.mark.thorough,
    # Four machines start three frameworks twice: beside three other workers that takes ten minutes.
    pytest.mark.timeout(1500),
]


def test_four_machines_run_each_framework_and_go_on_without_one_that_was_killed(
    boot: Boot, key: Path, tmp_path: Path
) -> None:
    machines = [boot("frameworks", f"10.213.0.{number}") for number in range(24, 28)]
    for machine in machines:
        machine.wait()
    hosts = [f"ip-10-213-0-{number}" for number in range(24, 28)]
    home = tmp_path / "home"
    home.mkdir()
    person, before = Person(home), trees(machines)
    person("up", hosts_file(tmp_path, "lab4", machines, key), "--accept-new-host-keys", "--yes")

    whole_lines = {"PYTHONUNBUFFERED": ""}  # as in test_modes
    one_each = {"extends": "mpi", "procs_per_node": 1, "env": whole_lines}
    mpi = run_file(tmp_path, "ranks", nodes=4, **one_each)
    assert said(person("run", mpi)) == [
        f"rank {rank} of 4 on {host}: sum 6, Open MPI v4.1.4" for rank, host in enumerate(hosts)
    ]
    torchrun = said(person("run", "stacks/torchrun.yaml"))
    assert [line.partition(",")[0] for line in torchrun] == [f"rank {n} of 8" for n in range(8)]
    ray = run_file(tmp_path, "actors", extends="ray", nodes=4)
    pinned = [f"[node0] Rank:{rank} is {host}" for rank, host in enumerate(hosts)]
    assert [line for line in person("run", ray).splitlines() if " is ip-" in line] == pinned

    retry = {"attempts": 2, "node_wait": "1s"}
    commands = ["echo runs; sleep 1000"]
    killed = run_file(tmp_path, "killed", type="task", nodes=4, retry=retry, commands=commands)
    with person.running("run", killed) as process:
        read_until(process, "[node2] runs")
        machines[2].machine.kill()
        assert process.stdout is not None
        output = process.stdout.read()
        assert process.wait() == 125, output
    why = "node2 .*; node2 did not come back within 1 s"
    assert re.search(rf"^Run killed-.*: failed in .*, exit code 125: {why}$", output, re.M), output
    assert "node2 is out of service: " in person("heal", "lab4", "--yes")
    three = hosts[:2] + hosts[3:]
    mpi = run_file(tmp_path, "ranks", nodes=3, **one_each)
    assert said(person("run", mpi)) == [
        f"rank {rank} of 3 on {host}: sum 3, Open MPI v4.1.4" for rank, host in enumerate(three)
    ]
    assert "error: node2: " in person("heal", "lab4", "--return", "node2", code=1)

    machines[2].machine.boot(machines[2].on_exit)
    machines[2].wait()
    assert person("heal", "lab4", "--return", "node2").endswith("node2 is in service again\n")
    assert [line.partition(",")[0] for line in said(person("run", "stacks/torchrun.yaml"))] == [
        f"rank {n} of 8" for n in range(8)
    ]
    person("down", "lab4", "--yes")
    for machine in machines:
        machine.output("rm -rf /tmp/ray /tmp/torchelastic_*")  # what the frameworks leave
    assert differences(before, trees(machines)) == [[]] * 4
