"""Two people share a lab's account, each with a state folder: commands that meet, on machines."""

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, run_file
from tests.e2e.region import ec2
from tests.interleaving import NAMES, NOBODYS_ID, PEOPLE, Step, carry_out
from tests.labs import lab_for

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.thorough]

LIVE = {"Name": "instance-state-name", "Values": ["pending", "running"]}
REFUSED = {
    "up": "exist in us-east-1, but this machine has no record of it",
    "down": "no cluster",
    "run": "no cluster",
}


class Booted:
    """The command, for each of the two, in one lab whose machines boot."""

    def __init__(self, folder: Path) -> None:
        lab = lab_for("both")
        self.of = {who: Gpuctl(folder / who, lab) for who in PEOPLE}
        small = {"nodes": 1, "instance_type": "c6i.large"}
        self._clusters = {
            name: cluster_file(
                folder, name, **small, network=DIRECT | {"cidr": f"10.{213 + place}.0.0/16"}
            )
            for place, name in enumerate(NAMES)
        }
        self._run = run_file(folder, "hello", ["echo hello from $GPUCTL_CLUSTER"], nodes=1)

    def do(self, step: Step) -> None:
        told = self.of[step.who](*self.words(step), code=2 if step.is_refused else 0)
        if step.is_refused:
            assert REFUSED[step.do] in told, told
        elif step.do == "run":
            assert f"hello from {step.name}\n" in told, told

    def words(self, step: Step) -> tuple[str, ...]:
        """The step's command line."""
        if step.do == "up":
            return ("--lab", "up", str(self._clusters[step.name]), "--yes")
        if step.do == "run":
            return ("--lab", "run", str(self._run), "--cluster", step.name)
        # Without an id, the only cluster of a name is meant, also where another owns it.
        chosen = ("--id", NOBODYS_ID) if step.is_refused else ()
        return ("--lab", "down", step.name, "--yes", *chosen)

    def ids(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for page in ec2(self.of["ann"]).describe_instances(Filters=[LIVE])["Reservations"]:
            for instance in page["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
                found.setdefault(tags["gpuctl:cluster"], set()).add(tags["gpuctl:id"])
        return found

    def known(self, who: str) -> Mapping[str, str]:
        seen = self.of[who].json("--lab", "status")
        return {one["name"]: one["id"] for one in seen if one["state"] == "ready"}


@contextmanager
def people(folder: Path) -> Iterator[Booted]:
    """Two people and their lab; nothing of it is left."""
    for who in PEOPLE:
        (folder / who).mkdir()
    both = Booted(folder)
    lab = both.of["ann"]
    lab("lab", "stop")
    lab("lab", "start")
    try:
        yield both
    finally:
        lab("lab", "stop")
    assert lab("lab", "status", "--leftovers") == ""


def test_each_command_is_taken_of_its_owner_and_refused_to_the_other(tmp_path: Path) -> None:
    with people(tmp_path) as both:
        carry_out(both, 24, 7)
        same = [both.words(Step(who, "up", "demo", is_refused=False)) for who in PEOPLE]
        with ThreadPoolExecutor(2) as pool:
            codes = list(pool.map(lambda one: call(*one), zip(both.of.values(), same, strict=True)))
        winners = [who for who, code in zip(PEOPLE, codes, strict=True) if code == 0]
        assert len(winners) == 1, codes
        assert both.ids() == {"demo": {both.known(winners[0])["demo"]}}


def call(gpuctl: Gpuctl, words: tuple[str, ...]) -> int:
    """The command's exit code."""
    done = subprocess.run(
        gpuctl.words(*words),
        env=gpuctl.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=500,
        check=False,
    )
    return done.returncode
