"""Jobs that end in other ways than well; the last test removes the cluster."""

import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from nodes.keys import ensure_key
from tests.e2e.conftest import Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import what_bills
from tests.e2e.ssh_agents import a_colleague, ssh_agent
from tests.engine.mail_servers import PASSWORD, USER, mail_server
from tests.engine.webhooks import make_certificate, webhook

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def units(gpuctl: Gpuctl, cluster: str) -> str:
    """What of any run still lives on the nodes, as soon as systemd has noticed that it ended."""
    count = "systemctl list-units --no-legend 'gpuctl-run-*' | wc -l"
    settled = f'for i in $(seq 50); do [ "$({count})" = 0 ] && break; sleep 0.2; done'
    return gpuctl("--lab", "exec", cluster, "--", f"{settled}; {count}; pgrep -xc sleep; true")


def test_ssh_is_a_shell_on_a_node_through_the_bastion(gpuctl: Gpuctl, cluster: str) -> None:
    (_, node1) = gpuctl.json("--lab", "status", cluster)[0]["nodes"]
    assert node1["private_ip"] in gpuctl("--lab", "ssh", cluster, "node1", "hostname", "-I")
    output = gpuctl("--lab", "ssh", cluster, "node7", code=2)
    assert output == ("gpuctl: error: cluster jobs has no 'node7'; it has bastion, node0, node1\n")


def test_a_dry_run_is_the_plan_and_runs_nothing(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    saved = tmp_path / "inventory.json"
    inventory = gpuctl.state / "clusters" / cluster / "inventory.json"
    saved.write_text(inventory.read_text())
    seed = "stacks/nccl-tests.dstack.yaml"
    before = gpuctl("--lab", "ps")
    there = gpuctl.json("--lab", "run", seed, "--cluster", cluster, "--dry-run")
    # from a saved inventory, without a cluster or a lab
    alone = gpuctl.json("run", seed, "--dry-run", "--inventory", str(saved))
    for plan in (there, alone):
        assert [node["environment"]["DSTACK_NODE_RANK"] for node in plan["nodes"]] == ["0", "1"]
        assert plan["nodes"][0]["environment"]["DSTACK_GPUS_NUM"] == "16"
        assert plan["nodes"][0]["script"] == there["nodes"][0]["script"]
    assert gpuctl("--lab", "ps") == before


def test_a_failing_rank_gives_its_code_and_its_last_lines(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    file = run_file(
        tmp_path,
        "fails",
        ["if [ $DSTACK_NODE_RANK -eq 1 ]; then echo no luck here; exit 7; fi", "sleep infinity"],
    )
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=7)
    assert "exit code 7" in output
    assert "Last lines of node1:\n  no luck here" in output
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def test_ctrl_c_stops_the_job_on_every_node(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    file = run_file(tmp_path, "endless", ["echo up; sleep infinity"])
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        read_until(process, "[node1] up")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 130, rest
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


def test_runs_go_on_side_by_side_and_wait_in_a_queue(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    """The second has none of its processes on the head; each ends alone, then the third begins."""
    stays = ["echo on $GPUCTL_NODE_NAME; sleep infinity"]
    left = str(run_file(tmp_path, "left", stays, nodes=1))
    right = str(run_file(tmp_path, "right", stays, nodes=1, on_stop="destroy"))
    wide = str(run_file(tmp_path, "both", ["echo ran"]))
    with gpuctl.running("--lab", "run", left, "--cluster", cluster) as first:
        read_until(first, "[node0] on node0")
        with gpuctl.running("--lab", "run", right, "--cluster", cluster) as second:
            read_until(second, "[node1] on node1")
            with gpuctl.running("--lab", "run", wide, "--cluster", cluster, "--queue") as third:
                read_until(third, "waits at place 1 of the queue, behind left-")
                known = gpuctl.json("--lab", "ps", "-n", "1")[0]
                assert (known["name"], known["status"], known["place"]) == ("both", "queued", 1)
                gpuctl("--lab", "stop", "right")
                rest, _ = second.communicate(timeout=60)
                assert second.returncode == 130, rest
                assert re.search(
                    r"cluster jobs is not destroyed: run left-.{6} \(and 1 more\) ", rest
                )
                there = gpuctl.json("--lab", "queue", cluster)
                assert [(one["state"], one["nodes"]) for one in there] == [
                    ("started", ["node0"]),
                    ("waiting", ["node0", "node1"]),
                ]
                gpuctl("--lab", "stop", "left")
                rest, _ = first.communicate(timeout=60)
                assert first.returncode == 130, rest
                rest, _ = third.communicate(timeout=60)
                assert third.returncode == 0, rest
                assert "[node1] ran" in rest
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


def test_too_few_nodes_is_said_before_anything_runs(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    file = run_file(tmp_path, "wide", ["true"], nodes=3)
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=2)
    assert output == (
        "gpuctl: error: run wide wants 3 nodes, cluster jobs has 2; use `--nodes 2`, or bring up a"
        " larger cluster\n"
    )


def test_destroy_comes_after_a_failure_too(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    file = run_file(tmp_path, "last", ["exit 9"], on_stop="destroy")
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=9)
    assert "Cluster jobs is gone" in output
    assert what_bills(gpuctl, cluster) == {}


def test_no_cluster_is_one_line(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file = run_file(tmp_path, "nowhere", ["true"])
    output = gpuctl("--lab", "run", str(file), "--cluster", "nowhere", code=2)
    assert output.count("\n") == 1
    assert output.startswith("gpuctl: error: there is no cluster 'nowhere'; ")
