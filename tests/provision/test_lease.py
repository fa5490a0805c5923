"""The lease on a machine: its scripts, and the program that notices an idle cluster."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.render.status import status_lines
from config.catalogue.instance_types import NAT_PRICE_USD_H, PUBLIC_IPV4_PRICE_USD_H
from config.cluster.cluster_file import Budget
from lab.machines.hardware_faults import SMI
from nodes.keys import generate_pair
from provision.aws.resources import Resource
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.lease.idle_watch import Idleness, Question, gpus_work, has_login, peers
from provision.setup.lease.units import (
    EXTENSION_OF_BASTION,
    SECONDS_LEFT,
    list_nodes,
    request_end,
    set_end,
)
from provision.state.record import ClusterRecord, Lease, lease_end
from provision.status import ClusterStatus, status_of
from tests.nodes.conftest import free_port, start_sshd
from tests.provision.test_cloud_init import KEY, P4D, cluster
from tests.provision.test_record import a_record

REPOSITORY = Path(__file__).parents[2]
HOURS = st.integers(0, 10_000)
SCRIPTS = {
    "set_end": set_end(60),
    "seconds_left": SECONDS_LEFT,
    "request_end": request_end(60),
    "list_nodes": list_nodes(["10.0.0.1", "10.0.0.2"]),
    "extend": EXTENSION_OF_BASTION["/usr/local/lib/gpuctl/extend"],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_shellcheck_clean(name: str) -> None:
    checked = subprocess.run(
        ["shellcheck", "-s", "sh", "-"],
        input=SCRIPTS[name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def sh(script: str, root: Path) -> str:
    """The output of a script whose units are files in `root`, and whose systemctl does nothing."""
    script = script.replace("/etc/systemd/system", str(root)).replace("/home/gpuctl", str(root))
    done = subprocess.run(
        ["sh", "-c", f"systemctl() {{ :; }}\n{script}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_machine_without_a_timer_has_no_end(tmp_path: Path) -> None:
    assert sh(SECONDS_LEFT, tmp_path) == "none"


def test_the_end_moves(tmp_path: Path) -> None:
    sh(set_end(3600), tmp_path)
    assert 3500 < int(sh(SECONDS_LEFT, tmp_path)) <= 3600
    sh(set_end(7200), tmp_path)
    assert 7100 < int(sh(SECONDS_LEFT, tmp_path)) <= 7200


def test_a_clock_that_is_set_back_prolongs_nothing(tmp_path: Path) -> None:
    sh(set_end(3600), tmp_path)
    timer = tmp_path / "gpuctl-lifetime.timer"
    lines = timer.read_text().splitlines()
    assert "OnActiveSec=3600s" in lines  # systemd.timer(5): on the monotonic clock
    later = datetime.now(UTC) + timedelta(hours=9)  # what the end is for a clock 8 h behind
    timer.write_text(
        "\n".join(
            f"OnCalendar={later:%Y-%m-%d %H:%M:%S} UTC" if "OnCalendar" in line else line
            for line in lines
        )
    )
    assert 3500 < int(sh(SECONDS_LEFT, tmp_path)) <= 3600


def test_after_a_reboot_the_calendar_counts(tmp_path: Path) -> None:
    sh(set_end(3600), tmp_path)
    timer = tmp_path / "gpuctl-lifetime.timer"
    lines = timer.read_text().splitlines()
    changed = [
        "Boot=another" if line.startswith("Boot=") else
        "Uptime=1" if line.startswith("Uptime=") else line
        for line in lines
    ]  # fmt: skip
    timer.write_text("\n".join(changed))
    assert 3500 < int(sh(SECONDS_LEFT, tmp_path)) <= 3600


def test_the_bastions_request_is_what_root_carries_out(tmp_path: Path) -> None:
    sh(set_end(60), tmp_path)
    request = request_end(9000).replace("/etc/systemd/system", str(tmp_path))
    request = request.replace("/home/gpuctl", str(tmp_path))
    with subprocess.Popen(["sh", "-c", request], stderr=subprocess.PIPE, text=True) as asking:
        while not (tmp_path / "lease").exists():
            time.sleep(0.01)
        sh(SCRIPTS["extend"], tmp_path)
        _, complaint = asking.communicate()
    assert (asking.returncode, complaint) == (0, "")
    assert 8900 < int(sh(SECONDS_LEFT, tmp_path)) <= 9000


@pytest.mark.parametrize("text", ["", "8h", "60; touch /tmp/x", "-5"])
def test_a_wrong_request_changes_nothing(tmp_path: Path, text: str) -> None:
    sh(set_end(60), tmp_path)
    before = (tmp_path / "gpuctl-lifetime.timer").read_text()
    (tmp_path / "lease").write_text(f"{text}\n")
    with pytest.raises(subprocess.CalledProcessError):
        sh(SCRIPTS["extend"], tmp_path)
    assert (tmp_path / "gpuctl-lifetime.timer").read_text() == before


# The idle cluster


@given(
    limit=st.integers(1, 500),
    work=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), max_size=20),
)
def test_nodes_end_together_and_never_while_one_works(
    limit: int, work: list[tuple[int, int]]
) -> None:
    """Four nodes check every second; one that works says so to all."""
    nodes = [Idleness(limit, 0) for _ in range(4)]
    ends: list[int | None] = [None] * 4
    last = 0
    for now in range(1000 + 2 * limit):
        if all(end is not None for end in ends):
            break
        alive = [i for i, end in enumerate(ends) if end is None]
        if any(now == at and rank in alive for rank, at in work):
            last = now
            for i in alive:
                nodes[i].note_work(now)
        for i in alive:
            if nodes[i].is_over(now):
                ends[i] = now
    assert ends == [last + limit] * 4


@given(limit=st.integers(1, 500), work=st.lists(st.integers(0, 1000), max_size=20))
def test_a_node_that_hears_nothing_ends_alone(limit: int, work: list[int]) -> None:
    node = Idleness(limit, 0)
    for at in sorted(work):
        node.note_work(at)
    last = max(work, default=0)
    assert not node.is_over(last + limit - 1)
    assert node.is_over(last + limit)
    assert node.pause_s(last + limit) == 0
    assert 0 < node.pause_s(last) <= 30


def test_a_late_message_takes_nothing_back() -> None:
    node = Idleness(10, 0)
    node.note_work(8)
    node.note_work(3)
    assert not node.is_over(17)


def test_peers_are_the_nodes_of_the_hosts_file() -> None:
    hosts = "127.0.0.1 localhost\n# gpuctl: nodes\n10.0.0.4 node0 ip-10-0-0-4\n"
    hosts += "10.0.0.5 node1 ip-10-0-0-5\n# gpuctl: end\n10.0.0.9 other\n"
    assert peers(hosts) == ["10.0.0.4", "10.0.0.5"]
    assert peers("127.0.0.1 localhost\n") == []


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("   0: 0400000A:0016 0900000A:D431 01 00000000:00000000 00:00000000", True),
        ("   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000", False),  # listens
        ("   0: 0400000A:0016 0900000A:D431 08 00000000:00000000 00:00000000", False),  # closed
        ("   0: 0400000A:D431 0900000A:0016 01 00000000:00000000 00:00000000", False),  # goes out
    ],
)
def test_a_login_is_a_connection_to_sshd(line: str, expected: bool) -> None:
    assert has_login(f"{HEAD}{line}\n") is expected
    assert not has_login("")


@pytest.mark.parametrize(
    ("output", "expected"),
    [("0\n0\n", False), ("4\n4\n", False), ("0\n5\n", True), ("100\n", True), ("", False),
     ("0\n[N/A]\n", True), ("[Unknown Error]\n", True), (None, True)],
)  # fmt: skip
def test_a_gpu_is_idle_only_if_it_says_so(output: str | None, expected: bool) -> None:
    assert gpus_work(output) is expected


def test_a_command_that_hangs_fails_or_is_missing_is_no_answer(tmp_path: Path) -> None:
    """As nvidia-smi hangs in a driver: SIGTERM does not end it, and its killed process remains."""
    starts = tmp_path / "starts"
    question = Question("sh", "-c", f"echo >> {starts}; exec sleep 600", answer_s=0.5)
    assert question.answer() is None
    assert Question("sh", "-c", "echo 0; exit 15").answer() is None  # a GPU is lost
    assert Question(str(tmp_path / "no-such-tool")).answer() == ""  # no driver, so no GPU at work
    assert Question("echo", "0").answer() == "0\n"


def test_a_command_that_hangs_is_not_started_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)  # as in a driver: it goes on
    starts, release = tmp_path / "starts", tmp_path / "release"
    os.mkfifo(release)
    question = Question(
        "sh", "-c", f"echo >> {starts}; read -r _ < {release}; echo 7", answer_s=0.5
    )
    assert [question.answer() for _ in range(3)] == [None] * 3
    assert starts.read_text() == "\n"
    release.write_text("\n")  # the driver answers again
    release.unlink()
    release.write_text("\n")
    assert await_answer(question) == "7\n"


def await_answer(question: Question) -> str | None:
    """The first answer after the hung process has ended."""
    while (answer := question.answer()) is None:
        pass
    return answer


@pytest.mark.parametrize(("fault", "expected"), [("mig", "[N/A]\n[N/A]\n"), ("smi", None)])
def test_a_gpu_of_the_lab_in_mig_mode_or_with_a_hanging_driver_is_not_idle(
    fault: str, expected: str | None, tmp_path: Path
) -> None:
    real, shown = tmp_path / "real", tmp_path / "nvidia-smi"
    real.write_text("#!/bin/sh\nprintf '0\\n0\\n'\n")
    shown.write_text(SMI[fault].replace("/usr/bin/nvidia-smi", str(real)))
    for tool in (real, shown):
        tool.chmod(0o755)
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    assert gpus_work(Question(str(real), *query).answer()) is False
    answer = Question(str(shown), *query, answer_s=1.0).answer()
    assert answer == expected
    assert gpus_work(answer) is True


WATCH = """
import sys
from provision.setup.lease import idle_watch as program

ports, hosts = sys.argv[1:3], sys.argv[3]
program.SSH_PORT, program.PORT = map(int, ports)
program.SET_UP = program.HOSTS = hosts
asked = program.is_at_work

def tell(nodes):
    answer = asked(nodes)
    print(answer, flush=True)
    return answer

program.is_at_work = tell
program.watch("demo", 2, "cpus")
print("idle")
"""


def test_a_login_alone_keeps_a_machine_and_its_end_does_not(tmp_path: Path) -> None:
    """A real sshd, an open session without a job, and no network in which a peer could be told."""
    private, public = generate_pair("ann")
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(private)
    (tmp_path / "authorized_keys").write_text(f"{public}\n")
    hosts = tmp_path / "hosts"  # to a broadcast address nothing may be sent
    hosts.write_text("# gpuctl: nodes\n255.255.255.255 node1\n# gpuctl: end\n")
    systemctl = tmp_path / "bin/systemctl"  # of a machine without a run
    systemctl.parent.mkdir()
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    path = f"{systemctl.parent}:{os.environ['PATH']}"
    server = start_sshd(tmp_path / "sshd", tmp_path / "authorized_keys")
    options = ["-F", "none", "-i", str(tmp_path / "key"), "-o", "StrictHostKeyChecking=no"]
    options += ["-o", "UserKnownHostsFile=/dev/null", "-p", str(server.port)]
    with ExitStack() as stack:
        stack.callback(server.stop)
        session = stack.enter_context(
            subprocess.Popen(
                ["ssh", *options, "127.0.0.1", "echo in; exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert session.stdout is not None
        assert session.stdout.readline() == "in\n"
        words = [sys.executable, "-c", WATCH, str(server.port), str(free_port()), str(hosts)]
        watch = stack.enter_context(
            subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, "PATH": path},
            )
        )
        stack.callback(watch.kill)
        assert watch.stdout is not None
        # It looks once a second: more than its limit of two has passed.
        assert [watch.stdout.readline() for _ in range(5)] == ["True\n"] * 5
        session.communicate("", timeout=60)
        rest = watch.communicate(timeout=60)[0].splitlines()
    assert rest[-2:] == ["False", "idle"]


def test_only_machines_with_a_limit_have_the_program() -> None:
    for document in (
        node_user_data(cluster(lifetime={"max": "8h"}), P4D, KEY),
        bastion_user_data(cluster(lifetime={"max": "8h"}), KEY),
    ):
        assert "gpuctl-idle" not in document
    idle = cluster(lifetime={"max": "8h", "idle": "30m"})
    program = "ExecStart=/usr/bin/python3 /usr/local/lib/gpuctl/idle demo 1800"
    assert f"{program} gpus\n" in node_user_data(idle, P4D, KEY)
    assert f"{program} cpus\n" in node_user_data(idle, replace(P4D, gpus=0), KEY)
    assert f"{program} /home/gpuctl/nodes\n" in bastion_user_data(idle, KEY)


# The budget, as `status` has it


def with_budget(max_total: float | None) -> ClusterRecord:
    made = recorded(None, {"max": "8h"}).now("ready")
    budget = None if max_total is None else Budget(max_total=max_total)
    asked = made.resolved.cluster.model_copy(update={"budget": budget})
    return made.model_copy(update={"resolved": made.resolved.model_copy(update={"cluster": asked})})


@pytest.mark.parametrize(
    ("share", "line"),
    [
        (0.79, None),
        (0.8, "it has cost about $10.00, 80 % of budget.max_total ($12.50)"),
        (1.0, "it has cost about $10.00, 100 % of budget.max_total ($10.00)"),
        (1.25, "it has cost about $10.00, 125 % of budget.max_total ($8.00)"),
        (None, None),
    ],
)
def test_status_warns_from_80_percent_of_the_budget_on(
    share: float | None, line: str | None
) -> None:
    """The cluster is a NAT gateway that has cost $10."""
    hours = 10 / (NAT_PRICE_USD_H + PUBLIC_IPV4_PRICE_USD_H)
    began = datetime.now(UTC) - timedelta(hours=hours)
    gateway = Resource("NAT gateway", "nat-1", "demo", "", "available", {"CreateTime": began})
    record = with_budget(None if share is None else 10 / share)
    status = status_of("demo", "us-east-1", record, [gateway], False, {})
    expected = () if line is None else (f"{line}; `gpuctl down demo` ends the cost",)
    assert tuple(text for text in status.problems if "budget" in text) == expected


# When the cluster ends, as `status` has it


def recorded(lease: Lease | None, lifetime: dict[str, str] | None) -> ClusterRecord:
    made = a_record("demo")
    asked = cluster(**({"lifetime": lifetime} if lifetime else {}))
    resolved = made.resolved.model_copy(update={"cluster": asked})
    return made.model_copy(update={"resolved": resolved, "lease": lease})


NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_the_first_machine_that_ends_counts() -> None:
    record = recorded(None, {"max": "8h"})
    assert lease_end(record, [NOON + HOUR, NOON]) == NOON + 8 * HOUR
    assert lease_end(record, []) is None
    assert lease_end(recorded(None, None), [NOON]) is None


def test_an_extension_counts_for_machines_that_existed() -> None:
    extended = Lease(end=NOON + 12 * HOUR, moved=NOON + HOUR)
    record = recorded(extended, {"max": "8h"})
    assert lease_end(record, [NOON, NOON]) == NOON + 12 * HOUR
    # node1 was made again after the extension
    assert lease_end(record, [NOON, NOON + 2 * HOUR]) == NOON + 10 * HOUR
    assert lease_end(record, [NOON + 2 * HOUR]) == NOON + 10 * HOUR
    # Nodes that run keep the lease of their launch if the file has none any more.
    without = recorded(extended, None)
    assert lease_end(without, [NOON, NOON + 2 * HOUR]) == NOON + 12 * HOUR
    assert lease_end(without, [NOON + 2 * HOUR]) is None


def test_status_has_the_end_of_the_record_and_without_a_record_the_first_tag() -> None:
    def machine(name: str, end: datetime) -> Resource:
        tags = [{"Key": "gpuctl:ends", "Value": end.isoformat()}]
        return Resource(
            "instance", name, "demo", name, "running", {"LaunchTime": NOON, "Tags": tags}
        )

    machines = [machine("node0", NOON + 9 * HOUR), machine("bastion", NOON + 8 * HOUR)]
    extended = Lease(end=NOON + 12 * HOUR, moved=NOON + HOUR)
    for record, end in (
        (recorded(extended, {"max": "8h"}), NOON + 12 * HOUR),
        (recorded(None, {"max": "8h"}), NOON + 8 * HOUR),
        (None, NOON + 8 * HOUR),
        (recorded(None, None), None),
    ):
        status = status_of("demo", "us-east-1", record, machines, False, {})
        assert status.ends == (end.isoformat() if end else None)


@pytest.mark.parametrize(
    ("ends", "idle_s", "expected"),
    [
        (None, None, []),
        (NOON, None, ["  ends by itself at 2026-11-23 12:00 UTC"]),
        (NOON, 1800, ["  ends by itself at 2026-11-23 12:00 UTC, or after 30m idle"]),
    ],
)
def test_status_prints_the_end(
    ends: datetime | None, idle_s: int | None, expected: list[str]
) -> None:
    status = ClusterStatus(
        name="demo", id="abcdefgh", owner="", region="us-east-1", state="ready", nodes=(),
        others=(), since=None, hourly_usd=None, spent_usd=None,
        ends=ends.isoformat() if ends else None, idle_s=idle_s, uses=(), problems=(),
    )  # fmt: skip
    assert status_lines(status) == ["demo: ready", *expected]
