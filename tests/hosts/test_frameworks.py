"""Frameworks on machines that people have: torchrun from `up` to `down`."""

import json
from pathlib import Path

import pytest

from tests.hosts.test_own_machines import Person
from tests.lab.conftest import Boot

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def test_torchrun_trains_on_own_machines(boot: Boot, key: Path, tmp_path: Path) -> None:
    booted = [boot("frameworks", f"10.213.0.{number}") for number in (24, 25)]
    for machine in booted:
        machine.wait()
    home = tmp_path / "home"
    home.mkdir()
    person, file = Person(home), tmp_path / "lab7.yaml"
    specs = [each.machine.spec for each in booted]
    hosts = [{"address": spec.public_ip, "internal": spec.private_ip} for spec in specs]
    content = {"name": "lab7", "hosts": hosts, "user": "root", "identity": str(key)}
    file.write_text(json.dumps(content))
    person("up", str(file), "--accept-new-host-keys", "--yes")
    done = person("run", "stacks/torchrun.yaml", "--cluster", "lab7")
    for rank, name in enumerate(("ip-10-213-0-24", "ip-10-213-0-25") * 2):
        assert f"of 4, {rank // 2} on {name}: weight 3.0" in done
    person("down", "lab7", "--yes")
