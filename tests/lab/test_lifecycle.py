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
from contextlib import suppress
from pathlib import Path

import pytest

from config.errors import LabError
from config.progress import Progress, silent
from lab import leftovers, lifecycle, state
from lab.places import DEFAULT, Places
from tests.lab.host import NOBODY, connects_as
from tests.lab.world import World, layout, refused
from tests.labs import KEY, lab_for

pytestmark = pytest.mark.thorough

HERE = """
import json, pathlib, sys, time
from lab import lifecycle, places, state
lab = places.Places("b", pathlib.Path(sys.argv[1]))
"""

HOLDER = f"""{HERE}
kept = state.hold_alive(lab)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A lab in a folder of this test's own, as if its network were up; nobody need be root."""
    found = Places("b", tmp_path)
    found.runtime.mkdir(parents=True)
    (found.runtime / "slot").write_text("3")
    return found


@pytest.mark.parametrize(
    ("name", "command"),
    [(DEFAULT, "gpuctl lab start"), ("b", "gpuctl --lab-name b lab start")],
)
def test_a_lab_that_is_down_is_no_target(tmp_path: Path, name: str, command: str) -> None:
    places = Places(name, tmp_path)
    with pytest.raises(LabError) as caught:
        lifecycle.target(places, "us-east-1")
    assert str(caught.value) == f"the lab is not running; start it with `{command}`"
    assert lifecycle.status(places) == lifecycle.LabStatus(up=False, name=name)


def test_a_record_counts_only_while_its_daemon_lives(places: Places) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(places.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "held\n"
        assert state.record(places) is None  # it lives, and is not ready
        record = state.LabRecord(daemon.pid, "http://127.0.0.1:1", "127.0.0.1:2", "now", KEY)
        state.publish(record, places)
        assert state.record(places) == record
        assert state.daemon_pid(places) == daemon.pid
        assert lifecycle.target(places, "eu-west-1").endpoint == "http://127.0.0.1:1"
        daemon.kill()
    assert places.record.exists()
    assert state.record(places) is None


STOPPER = f"""{HERE}
from config.errors import LabError
from config.progress import silent
try:
    lifecycle.stop(lab, silent)
except LabError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_a_daemon_outside_of_the_container_is_not_stopped(places: Places) -> None:
    stopper = (sys.executable, "-c", STOPPER, str(places.root))
    with state.hold_alive(places):
        answer = subprocess.run(
            ("unshare", "--pid", "--fork", "--mount-proc", *stopper),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert answer.stdout == (
        "the daemon of the lab 'b' runs outside of this container;"
        " stop the lab where it was started\n"
    )


def test_a_target_keeps_real_credentials_and_the_metadata_service_out(places: Places) -> None:
    with state.hold_alive(places):
        state.publish(state.LabRecord(1, "http://127.0.0.1:1", "127.0.0.1:2", "now", KEY), places)
        answer = subprocess.run(
            [sys.executable, "-c", READER, str(places.root)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert json.loads(answer.stdout) == {
        "environment": {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        "caller_address": "198.19.47.1",
        "provider_address": "127.0.0.1:2",
        "vpcs_are_isolated": True,
    }


READER = f"""{HERE}
target = lifecycle.target(lab, "us-east-1")
names = ("environment", "caller_address", "provider_address", "vpcs_are_isolated")
print(json.dumps({{name: getattr(target, name) for name in names}}, default=dict))
"""


# With machines


LAB = lab_for("life")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[lifecycle.LabStatus]:
    """A lab of this test's own; nothing of it is left, as the test's last assertion."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lifecycle.stop(LAB, silent)
    try:
        yield lifecycle.start(LAB, silent)
    finally:
        lifecycle.stop(LAB, silent)
    assert leftovers.find(LAB) == ()
    assert lifecycle.status(LAB) == lifecycle.LabStatus(up=False, name=LAB.name)


def region() -> World:
    """Enter the lab's region with the key that the lab made for itself."""
    record = state.record(LAB)
    assert record
    return World(record.api_url, record.key)


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
    world = region()
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
    assert set(lifecycle.status(LAB).machines) >= set(nodes)

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
    until(lambda: lifecycle.status(LAB).machines == ())
    assert "user data ran on" in console(world, stays)  # its last words stay
    world.ec2.delete_placement_group(GroupName="demo")


@pytest.mark.lab
def test_other_users_reach_neither_api_nor_provider(lab: lifecycle.LabStatus) -> None:
    for address in (str(lab.api_url).removeprefix("http://"), str(lab.provider_address)):
        host, _, port = address.rpartition(":")
        assert connects_as(0, host, int(port))
        assert not connects_as(NOBODY, host, int(port))
    assert LAB.record.stat().st_mode & 0o777 == 0o600
    key = region().key
    assert key.secret not in LAB.log.read_text()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            assert key.secret not in process.read_bytes().decode(errors="replace")


def console(world: World, instance: str) -> str:
    return str(world.ec2.get_console_output(InstanceId=instance, Latest=True)["Output"])


@pytest.mark.lab
def test_two_starts_at_once_are_one_lab(lab: lifecycle.LabStatus) -> None:
    lifecycle.stop(LAB, silent)
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: lifecycle.start(LAB, silent), range(2))
    assert first == second
    assert first.up


@pytest.mark.lab
def test_what_a_crashed_lab_left_is_cleared(lab: lifecycle.LabStatus, tmp_path: Path) -> None:
    assert lab.pid and lab.provider_address
    (instance,) = region().run()
    until(lambda: instance in lifecycle.status(LAB).machines)
    os.kill(lab.pid, signal.SIGKILL)
    until(lambda: not lifecycle.status(LAB).up)
    assert f"machine {instance}" in leftovers.find(LAB)

    said: list[Progress] = []
    again = lifecycle.start(LAB, said.append)
    cleared = next(p.detail for p in said if (p.subject, p.state) == ("leftovers", "done"))
    assert f"machine {instance}" in cleared
    assert again.machines == ()
    assert again.pid != lab.pid
    until(lambda: not listens(str(lab.provider_address)))

    folder = lifecycle.target(LAB, "us-east-1").state
    for name in ("clusters", "pulumi", "runs"):
        (folder / name).mkdir(parents=True)
    lifecycle.stop(LAB, silent)
    assert sorted(path.name for path in folder.iterdir()) == ["runs"]
    assert not listens(str(again.provider_address))
    assert tmp_path in folder.parents


PROFILES = """
[profile mfa]
role_arn = arn:aws:iam::210987654321:role/research
source_profile = keys
mfa_serial = arn:aws:iam::210987654321:mfa/ann

[profile keys]
region = eu-north-1

[profile sso]
sso_session = company
sso_account_id = 210987654321
sso_role_name = research
region = eu-north-1

[sso-session company]
sso_start_url = https://company.awsapps.com/start
sso_region = eu-north-1
"""


@pytest.mark.lab
@pytest.mark.parametrize("name", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "GPUCTL_AWS_PROFILE"])
def test_a_profile_with_mfa_or_sso_does_not_concern_a_lab(
    lab: lifecycle.LabStatus, tmp_path: Path, name: str
) -> None:
    (tmp_path / "config").write_text(PROFILES)
    (tmp_path / "keys").write_text("[keys]\naws_access_key_id = AKID\naws_secret_access_key = x\n")
    file = tmp_path / "cluster.yaml"
    file.write_text("name: demo\nnodes: 1\ninstance_type: c6i.large\n")
    files = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"),
    }
    for profile in ("mfa", "sso", "of-nobody", ""):
        for command in (("status",), ("plan", str(file))):
            done = subprocess.run(
                [sys.executable, "-m", "gpuctl", "--lab-name", LAB.name, *command],
                env={**os.environ, **files, name: profile},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (profile, command, done.stdout + done.stderr)
            assert "profile" not in done.stdout + done.stderr
