"""The lab as a whole: it starts once, boots what the API is asked for, and leaves nothing."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from config.errors import LabError
from config.progress import Progress, silent
from lab import leftovers, lifecycle, prerequisites, state
from tests.lab.world import World, layout, refused

HOLDER = """
import pathlib, sys, time
from lab import state
state.RUNTIME, state._ALIVE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]) / "daemon.lock"
kept = state.hold_alive()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab's places that are this test's own."""
    for name, path in {
        "RUNTIME": tmp_path,
        "RECORD": tmp_path / "lab.json",
        "_ALIVE": tmp_path / "daemon.lock",
        "_CHANGING": tmp_path / "changing.lock",
    }.items():
        monkeypatch.setattr(state, name, path)
    return tmp_path


def test_a_lab_that_is_down_is_no_target(runtime: Path) -> None:
    with pytest.raises(LabError) as caught:
        lifecycle.target("us-east-1")
    assert str(caught.value) == ("the lab is not running; start it with `gpuctl lab start`")
    assert lifecycle.status() == lifecycle.LabStatus(up=False)


def test_a_record_counts_only_while_its_daemon_lives(runtime: Path) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(runtime)], stdout=subprocess.PIPE, text=True
    )
    with daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "held\n"
        assert state.record() is None  # it lives, and is not ready
        state.publish(state.Record(daemon.pid, "http://127.0.0.1:1", "127.0.0.1:2", "now"))
        assert state.daemon_pid() == daemon.pid
        assert lifecycle.target("eu-west-1").endpoint == "http://127.0.0.1:1"
        daemon.kill()
    assert (runtime / "lab.json").exists()
    assert state.record() is None


def test_a_target_keeps_real_credentials_and_the_metadata_service_out(runtime: Path) -> None:
    with state.hold_alive():
        state.publish(state.Record(1, "http://127.0.0.1:1", "127.0.0.1:2", "now"))
        answer = subprocess.run(
            [sys.executable, "-c", READER, str(runtime)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert json.loads(answer.stdout) == {
        "environment": {
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        "caller_address": "198.18.255.1",
        "provider_address": "127.0.0.1:2",
    }


READER = """
import json, pathlib, sys
from lab import lifecycle, state
folder = pathlib.Path(sys.argv[1])
state.RECORD, state._ALIVE = folder / "lab.json", folder / "daemon.lock"
target = lifecycle.target("us-east-1")
names = ("environment", "caller_address", "provider_address")
print(json.dumps({name: getattr(target, name) for name in names}))
"""


def test_what_is_missing_is_said_in_one_line(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = (
        prerequisites.Prerequisite("nft", "not found", "apt-get install -y nftables"),
        prerequisites.Prerequisite("ip", "not found", "apt-get install -y iproute2"),
    )
    monkeypatch.setattr(prerequisites, "missing", lambda: lacking)
    with pytest.raises(LabError) as caught:
        lifecycle.start(silent)
    assert str(caught.value) == (
        "the lab cannot start: nft: not found, ip: not found;"
        " apt-get install -y nftables; apt-get install -y iproute2"
    )


# With machines


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[lifecycle.LabStatus]:
    """A lab of this test's own; nothing of it is left, as the test's last assertion."""
    if state.daemon_pid() is not None:
        pytest.fail("a lab is running on this machine; stop it with `gpuctl lab stop`")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    try:
        yield lifecycle.start(silent)
    finally:
        lifecycle.stop(silent)
    assert leftovers.found() == ()
    assert lifecycle.status() == lifecycle.LabStatus(up=False)


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.1)


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def user_data(*commands: str, **more: object) -> str:
    document = "#cloud-config\n" + json.dumps({"runcmd": list(commands), **more})
    return base64.b64encode(document.encode()).decode()


@pytest.mark.lab
def test_a_fleet_boots_runs_its_user_data_and_goes(lab: lifecycle.LabStatus) -> None:
    assert lab.api_url is not None
    world = World(lab.api_url)
    world.ec2.create_placement_group(GroupName="demo")
    template = world.template(
        NetworkInterfaces=world.p4d()[:4],
        Placement={"GroupName": "demo"},
        InstanceInitiatedShutdownBehavior="terminate",
        UserData=user_data("echo user data ran on $(hostname) > /dev/console"),
    )
    stays, _ = nodes = world.run(2, LaunchTemplate={"LaunchTemplateId": template})
    (leaves,) = world.run(
        LaunchTemplate={"LaunchTemplateId": template},
        UserData=base64.b64decode(user_data(power_state={"mode": "poweroff"})).decode(),
    )
    until(lambda: {world.state(i) for i in nodes} == {"running"})
    assert set(lifecycle.status().machines) >= set(nodes)

    for node in nodes:
        instance = world.instance(node)
        assert len(layout(instance["NetworkInterfaces"])) == 4
        mark = f"user data ran on ip-{instance['PrivateIpAddress'].replace('.', '-')}"
        until(lambda node=node, mark=mark: mark in console(world, node))  # type: ignore[misc]
        keys = "-----END SSH HOST KEY KEYS-----"
        until(lambda node=node, keys=keys: keys in console(world, node))  # type: ignore[misc]

    until(lambda: world.state(leaves) == "terminated")
    reason = world.instance(leaves)["StateReason"]["Code"]
    assert reason == "Client.InstanceInitiatedShutdown"

    with refused(
        "InvalidPlacementGroup.InUse",
        "The placement group 'demo' is in use and may not be deleted.",
    ):
        world.ec2.delete_placement_group(GroupName="demo")
    world.ec2.terminate_instances(InstanceIds=nodes)
    until(lambda: {world.state(i) for i in nodes} == {"terminated"})
    until(lambda: lifecycle.status().machines == ())
    assert "user data ran on" in console(world, stays)  # its last words stay
    world.ec2.delete_placement_group(GroupName="demo")


def console(world: World, instance: str) -> str:
    return str(world.ec2.get_console_output(InstanceId=instance, Latest=True)["Output"])


@pytest.mark.lab
def test_two_starts_at_once_are_one_lab(lab: lifecycle.LabStatus) -> None:
    lifecycle.stop(silent)
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: lifecycle.start(silent), range(2))
    assert first == second
    assert first.up


@pytest.mark.lab
def test_what_a_crashed_lab_left_is_cleared(lab: lifecycle.LabStatus, tmp_path: Path) -> None:
    assert lab.api_url and lab.pid and lab.provider_address
    (instance,) = World(lab.api_url).run()
    until(lambda: instance in lifecycle.status().machines)
    os.kill(lab.pid, signal.SIGKILL)
    until(lambda: not lifecycle.status().up)
    assert f"machine {instance}" in leftovers.found()

    said: list[Progress] = []
    again = lifecycle.start(said.append)
    cleared = next(p.detail for p in said if (p.subject, p.state) == ("leftovers", "done"))
    assert f"machine {instance}" in cleared
    assert again.machines == ()
    assert again.pid != lab.pid
    until(lambda: not listens(str(lab.provider_address)))

    folder = lifecycle.target("us-east-1").state
    for name in ("clusters", "pulumi", "runs"):
        (folder / name).mkdir(parents=True)
    lifecycle.stop(silent)
    assert sorted(path.name for path in folder.iterdir()) == ["runs"]
    assert not listens(str(again.provider_address))
    assert tmp_path in folder.parents
