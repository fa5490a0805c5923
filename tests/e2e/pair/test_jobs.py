"""Jobs that end in other ways than well."""

import json
import re
import shutil
import subprocess
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from nodes.keys import ensure_key
from tests.e2e.conftest import Gpuctl, cluster_file, read_until, run_file
from tests.e2e.ssh_agents import a_colleague, ssh_agent
from tests.engine.mail_servers import PASSWORD, USER, mail_server
from tests.engine.webhooks import make_certificate, webhook

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def units(gpuctl: Gpuctl, cluster: str) -> str:
    """What of any run still lives on the nodes, as soon as systemd has noticed that it ended."""
    count = "systemctl list-units --no-legend 'gpuctl-run-*' | wc -l"
    settled = f'for i in $(seq 50); do [ "$({count})" = 0 ] && break; sleep 0.2; done'
    return gpuctl("--lab", "exec", cluster, "--", f"{settled}; {count}; pgrep -xc sleep; true")


def test_a_stop_with_notice_reaches_each_rank_that_mpirun_started(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    """Rank 3 has no handler: it would die of the signal that mpirun passes on."""
    commands = [
        "rank=$OMPI_COMM_WORLD_RANK",
        "[ $rank = 3 ] || trap 'echo saves $rank; exit' USR1",
        "echo up $rank",
        "while :; do sleep 1 & wait; done",
    ]
    more = {"type": "mpi", "procs_per_node": 2, "on_notice": {"signal": "USR1"}}
    file = run_file(tmp_path, "saves", commands, **more)
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        for _ in range(4):
            read_until(process, "] up ")
        stopped = gpuctl("--lab", "stop", "saves", "--grace", "8s")
        rest, _ = process.communicate(timeout=90)
        assert process.returncode == 130, rest
    assert re.search("stopped in .*, exit code 130: stopped on request", stopped)
    assert re.search(r"-- notice to the job: the run is stopped at [0-9:]+ UTC, in 8 s\n", rest)
    said = re.findall(r"\] (saves \d)\n", rest)
    assert sorted(said) == ["saves 0", "saves 1", "saves 2"], rest
    assert "-- stop asked\n" in rest, "rank 3 lived until then"
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def test_a_killed_client_leaves_a_run_that_logs_follow_and_stop_end(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    file = run_file(tmp_path, "orphan", ["echo up; sleep infinity"])
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        read_until(process, "[node1] up")
        process.kill()
    with gpuctl.running("--lab", "logs", "orphan", "-f") as follower:
        read_until(follower, "[node0] up")
        known = gpuctl.json("--lab", "ps")[0]
        assert known["status"] == "running"
        run = rf"run {known['run_id']} has been on cluster {cluster} since [0-9-]+ [0-9:]+ UTC"
        same = cluster_file(tmp_path, cluster)
        planned = gpuctl("--lab", "plan", str(same), "--replace", "node1")
        assert "\nnode1 is replaced: --replace names it\n" in planned
        gpuctl("--lab", "plan", str(same), "--detailed-exitcode")  # nothing changes: 0
        refused = gpuctl("--lab", "up", str(same), "--replace", "node1", "--yes", code=2)
        assert re.search(rf"{run}, and this plan ends machines; ", refused)
        refused = gpuctl("--lab", "down", cluster, code=2)
        assert re.search(rf"{run}; it ends with the cluster\. Remove cluster {cluster} ", refused)
        gpuctl("--lab", "stop", "orphan")
        follower.communicate(timeout=60)
        assert follower.returncode == 0
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def attached_killed_and_attached(gpuctl: Gpuctl, cluster: str, name: str) -> str:
    """What the second client prints of the run, which then ends with 4."""
    with gpuctl.running("--lab", "attach", name) as first:
        read_until(first, "[node1] 200\n")
        first.kill()
    with gpuctl.running("--lab", "attach", name) as second:
        lines = read_until(second, "[node1] 300\n")
        gpuctl("--lab", "exec", cluster, "--", "touch /tmp/go")
        rest, _ = second.communicate(timeout=60)
        assert second.returncode == 4, rest
    return "".join([*lines, rest])


def test_a_detached_run_is_attached_killed_and_attached_again(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line is there once, and the second client ends as `run` does, with its outputs.

    The head notifies: of the start when nobody is attached, of the end as well. Two webhooks and an
    SMTP server are on the lab's network; the head trusts the server's certificate. The
    head's own timer ends its lifetime in ten minutes, as its file says.
    """
    here = f"--lab ssh {cluster} node0 --".split()
    gateway = gpuctl(*here, "ip -4 route show default").split()[2]
    timer = "/etc/systemd/system/gpuctl-lifetime.timer"
    end = "$(date -u -d '+10 min' '+%F %T') UTC"
    gpuctl(*here, f'printf "[Timer]\\nOnCalendar=%s\\n" "{end}" > {timer}')
    wait = "until test -e /tmp/go; do sleep 0.2; done"
    commands = [f"seq 1 300; {wait}; seq 301 600; echo kept > result; exit 4"]
    notify: list[dict[str, Any]] = [{"command": "{ cat; echo; } >> /root/notified"}]
    certificate = make_certificate(tmp_path / "one.pem", gateway)
    trusted = "$(python3 -c 'import ssl; print(ssl.get_default_verify_paths().openssl_cafile)')"
    public = certificate.read_text().partition("-----END PRIVATE KEY-----\n")[2]
    gpuctl(*here, f"cat >> {trusted} <<end\n{public}end\n")
    monkeypatch.setenv("SMTP_USER", USER)
    monkeypatch.setenv("SMTP_PASSWORD", PASSWORD)
    with (
        webhook(address=gateway, lab=gpuctl.lab) as plain,
        webhook(address=gateway, lab=gpuctl.lab) as slack,
        mail_server(certificate, address=gateway, lab=gpuctl.lab) as mail,
    ):
        email = {
            **{"host": gateway, "port": int(mail.to.rpartition(":")[2])},
            **{"sender": "gpuctl@example.com", "to": ["ann@example.com"]},
            **{"user": {"secret": "SMTP_USER"}, "password": {"secret": "SMTP_PASSWORD"}},
        }
        notify.append({"email": email, "on": ["failure"]})
        notify += [{"webhook": plain.url}, {"webhook": slack.url, "form": "slack"}]
        file = run_file(tmp_path, "left", commands, outputs=["result"], notify=notify)
        started = gpuctl.json("--lab", "run", str(file), "--cluster", cluster, "--detach")
        name = started["run_id"]
        rest = attached_killed_and_attached(gpuctl, cluster, name)
        assert gpuctl("--lab", "wait", name, code=4).startswith(
            f"Run {name}: failed, exit code 4: "
        )
    gpuctl(*here, f"rm {timer}")
    bodies = sorted(plain.bodies(), key=itemgetter("id"))
    of = {one["event"]: one for one in bodies}
    assert (set(of), len(bodies)) == ({"start", "lease", "failure"}, 3)
    assert {one["text"] for one in slack.bodies()} == {one["text"] for one in bodies}
    (letter,) = mail.mails
    assert (letter["Subject"], mail.logins) == (of["failure"]["text"], [True])
    assert re.fullmatch(
        rf"run {name} on cluster {cluster}: the cluster's lifetime ends at [^ ]+Z, in"
        r" (9 min \d+ s|10 min); its nodes power off then,"
        rf" and the rest costs until `{gpuctl.program} down {cluster}`",
        of["lease"]["text"],
    )
    printed = Counter(line for line in rest.splitlines() if line[0:1] == "[")
    whole = Counter(f"[node{rank}] {n}" for rank in (0, 1) for n in range(1, 601))
    assert printed <= whole, "none is there twice"
    first_failed = gpuctl.json("--lab", "ps")[0]["first_failed_rank"]
    assert {line for line in whole if line.startswith(f"[node{first_failed}]")} <= set(printed)
    outputs = tmp_path / "outputs" / name / f"rank-{first_failed}"
    assert (outputs / "result").read_text() == "kept\n"
    told = gpuctl("--lab", "ssh", cluster, "node0", "cat", "/root/notified").splitlines()
    notices = [json.loads(line) for line in told if line.startswith("{")]
    assert sorted(notices, key=itemgetter("id")) == bodies
    assert (of["failure"]["exit_code"], of["failure"]["run_id"]) == (4, name)
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def test_a_colleague_has_access_with_an_own_key_until_it_is_revoked(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The colleague has the cluster's record and pinned host keys, and not its private key."""
    ann = a_colleague(gpuctl, cluster, tmp_path / "ann")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    ensure_key(tmp_path / "key", "ann@laptop")
    exec_ = ("--lab", "exec", cluster, "--", "whoami")
    with ssh_agent(tmp_path / "agent", tmp_path / "key"):
        grant = f"`{gpuctl.program} grant jobs yourkey.pub`"
        refused = f"refused your ssh keys; ask a member to run {grant}"
        assert f") {refused}\n" in ann(*exec_, code=1)
        assert f") {refused}\n" in ann("--lab", "ssh", cluster, "node1", "true", code=1)
        granted = gpuctl("--lab", "grant", cluster, str(tmp_path / "key.pub"))
        assert re.fullmatch(
            r"ann@laptop \(SHA256:\S+\) has access to jobs: bastion,node\[0-1\]\n", granted
        )
        shutil.copy(
            gpuctl.state / "clusters" / cluster / "cluster.json", ann.state / "clusters/jobs"
        )
        assert ann(*exec_) == "--- node[0-1]\nroot\n"
        assert ann("--lab", "ssh", cluster, "node1", "whoami") == "root\n"
        config = ssh_config(ann, cluster, tmp_path)
        hosts = subprocess.run(
            ["ssh", "-F", str(config), "jobs-node1", "whoami"], capture_output=True, check=False
        )
        assert (hosts.stdout, hosts.stderr) == (b"root\n", b"")
        (tmp_path / "file").write_text("from ann\n")
        ann("--lab", "cp", cluster, str(tmp_path / "file"), "all:/tmp/from-ann")
        hello = run_file(tmp_path, "hello", ["cat /tmp/from-ann"])
        assert ann("--lab", "run", str(hello), "--cluster", cluster).count("from ann\n") == 2
        assert "from ann\n" in ann("--lab", "logs", "hello")

        own = gpuctl.state / "clusters" / cluster / "id_ed25519.pub"
        assert gpuctl("--lab", "revoke", cluster, str(own), code=2) == (
            "gpuctl: error: that is gpuctl's own key of cluster jobs, which cannot be revoked;"
            f" `{gpuctl.program} down jobs` removes the cluster\n"
        )
        a_revoked_key_has_no_open_connection(gpuctl, ann, cluster)
        assert re.fullmatch(
            r"--- node\[0-1\]: exit code 255\nthe bastion \(\S+\) refused your ssh keys;"
            r" ask a member to run `gpuctl (--lab-name \S+ )?grant jobs yourkey.pub`\n",
            ann(*exec_, code=255),
        )
    kept = gpuctl("--lab", "exec", cluster, "--", "cat .ssh/authorized_keys")
    assert ("gpuctl jobs\n" in kept, "(granted by gpuctl)" in kept) == (True, False)
    (only,) = gpuctl.json("--lab", "grant", cluster)["keys"]
    assert only["own"]


def a_revoked_key_has_no_open_connection(gpuctl: Gpuctl, ann: Gpuctl, cluster: str) -> None:
    """Revoke the key while it has shells on a node and the bastion; another key's shell stays."""
    stay = "echo in; sleep 600"
    with (
        ann.running("--lab", "ssh", cluster, "node0", stay) as shell,
        ann.running("--lab", "ssh", cluster, "bastion", stay) as entrance,
        gpuctl.running("--lab", "ssh", cluster, "bastion", stay) as member,
    ):
        for one in (shell, entrance, member):
            read_until(one, "in\n")
        revoked = gpuctl.json("--lab", "revoke", cluster, "ann@laptop")
        assert (shell.wait(60), entrance.wait(60)) == (255, 255)
        assert member.poll() is None
    assert revoked["machines"] == ["node0", "node1", "bastion"]
    assert revoked["unchecked"] == []
    # The two shells, and gpuctl's to a machine; others end when the tunnel that they use does.
    assert revoked["ended_connections"] >= 3


def ssh_config(gpuctl: Gpuctl, cluster: str, folder: Path) -> Path:
    """Write the cluster's hosts into the ssh settings of another home; return the settings."""
    words = gpuctl.words("--lab", "ssh-config", cluster, "--yes")
    environment = gpuctl.environment | {"HOME": str(folder / "home")}
    (folder / "home").mkdir()
    subprocess.run(words, env=environment, capture_output=True, check=True)
    return folder / "home/.ssh/config"
