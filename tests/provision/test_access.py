"""Keys of colleagues: the plan of changes, and the script that a machine carries out."""

import os
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from nodes.keys import PublicKey, generate_pair, parse_public_key
from provision.access import confirmed, machine_script, with_grants, with_revocations
from provision.state.record import Grant
from tests.nodes.conftest import start_sshd

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
MACHINES = ("node0", "node1", "bastion")


def a_key(name: str) -> PublicKey:
    return parse_public_key(generate_pair(name)[1], name)


ANN, BOB = a_key("ann@laptop"), a_key("Bob's key; $(reboot) %s \\n")


def granted(*keys: PublicKey) -> tuple[Grant, ...]:
    return confirmed(with_grants((), keys, MACHINES, NOW), ())


def test_a_grant_is_open_until_each_machine_has_confirmed_it() -> None:
    asked = with_grants(granted(BOB), [ANN], MACHINES, LATER)
    assert asked == (
        Grant(key=BOB.key, name=BOB.name, since=NOW),
        Grant(key=ANN.key, name="ann@laptop", since=LATER, open=MACHINES),
    )
    assert confirmed(asked, ["node1"])[1].open == ("node1",)
    assert confirmed(asked, ())[1].open == ()


def test_a_second_grant_keeps_the_time_and_a_revoked_key_gets_a_new_one() -> None:
    once = granted(ANN)
    assert confirmed(with_grants(once, [ANN], MACHINES, LATER), ()) == once
    back = with_grants(with_revocations(once, [ANN], MACHINES), [ANN], MACHINES, LATER)
    assert back == (Grant(key=ANN.key, name="ann@laptop", since=LATER, open=MACHINES),)


def test_a_revoked_key_stays_recorded_while_a_machine_may_have_it() -> None:
    gone = with_revocations(granted(ANN, BOB), [ANN], MACHINES)
    assert [one.is_revoked for one in gone] == [True, False]
    assert confirmed(gone, ["node1"])[0].open == ("node1",)
    assert confirmed(gone, ()) == granted(BOB)


def run(script: str, home: Path) -> str:
    done = subprocess.run(
        ["sh", "-s"],
        input=script,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_machine_has_exactly_the_granted_keys_and_all_lines_of_others(tmp_path: Path) -> None:
    file = tmp_path / ".ssh" / "authorized_keys"
    run(machine_script(granted(ANN)), tmp_path)
    assert file.read_text() == f"{ANN.key} ann@laptop (granted by gpuctl)\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    others = 'ssh-ed25519 AAAAown gpuctl demo\n# mine\n\nrestrict,command="a b" ssh-rsa AAAA x'
    file.write_text(others)  # without a line end
    both = (
        f"{others}\n{ANN.key} ann@laptop (granted by gpuctl)\n"
        f"{BOB.key} {BOB.name} (granted by gpuctl)\n"
    )
    for _ in range(2):
        assert run(machine_script(granted(ANN, BOB)), tmp_path) == "0\n"
        assert file.read_text() == both
    # Somebody has written the key once more, by hand: it goes too.
    file.write_text(f"{both}{ANN.key} again\n")
    run(machine_script(with_revocations(granted(ANN, BOB), [ANN], MACHINES)), tmp_path)
    assert file.read_text() == f"{others}\n{BOB.key} {BOB.name} (granted by gpuctl)\n"
    run(machine_script(()), tmp_path)
    assert file.read_text() == f"{others}\n"


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / ".ssh" / "authorized_keys"
    file.parent.mkdir()
    file.write_text("ssh-ed25519 AAAAown gpuctl demo\n")
    (tmp_path / ".ssh" / "authorized_keys.gpuctl").symlink_to("/dev/full")
    script = machine_script(granted(ANN))
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-s"], input=script, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert file.read_text() == "ssh-ed25519 AAAAown gpuctl demo\n"


def a_journalctl(folder: Path, server: int) -> Path:
    """A program `bin/journalctl` for the log of the sshd; it shows the last login the second time.

    That one is this test's own.
    """
    pids = subprocess.run(
        ["pgrep", "-P", str(server)], capture_output=True, text=True, check=False
    ).stdout.split()
    log = (folder / "sshd" / "log").read_text().splitlines()
    accepted = [line for line in log if line.startswith("Accepted publickey")]
    journal = "".join(
        f"Nov 23 09:00:00 host sshd[{pid}]: {line}\n"
        for pid, line in zip(pids, accepted, strict=True)
    )
    own = f"sshd-session[{os.getpid()}]: Accepted publickey for root SHA256:x"
    (folder / "journal").write_text(f"{journal}Nov 23 09:00:01 host {own}\n")
    (folder / "bin").mkdir()
    tool = folder / "bin" / "journalctl"
    tool.write_text(
        f"#!/bin/sh\ncd {folder}\necho $* >> calls\n"
        "if [ $(wc -l < calls) = 1 ]; then sed '$d' journal; else cat journal; fi\n"
    )
    tool.chmod(0o755)
    return tool


def test_connections_of_a_revoked_key_end_and_no_others(tmp_path: Path) -> None:
    """A real sshd serves both; journalctl is a stand-in that prints the sshd's log."""
    keys = {name: generate_pair(name) for name in ("ann", "bob")}
    authorized = tmp_path / "authorized_keys"
    authorized.write_text("".join(f"{public}\n" for _, public in keys.values()))
    server = start_sshd(tmp_path / "sshd", authorized)
    shells = {}
    try:
        for name, (private, _) in keys.items():
            (tmp_path / name).touch(0o600)
            (tmp_path / name).write_text(private)
            options = ["-F", "none", "-i", str(tmp_path / name), "-o", "IdentitiesOnly=yes"]
            options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
            shells[name] = subprocess.Popen(
                ["ssh", *options, "-p", str(server.port), "127.0.0.1", "echo in; exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert shells[name].stdout.readline() == "in\n"  # type: ignore[union-attr]
        tool = a_journalctl(tmp_path, server.process.pid)
        ann = parse_public_key(keys["ann"][1], "ann")
        script = machine_script(with_revocations(granted(ann), [ann], MACHINES))
        script = f"PATH={tmp_path}/bin:$PATH\n{script}"
        assert run(script, tmp_path) == "1\n"
        asked = "-b -q --no-pager -o short _UID=0 -t sshd -t sshd-session\n"
        assert (tmp_path / "calls").read_text() == asked * 2
        shells["ann"].communicate(timeout=60)
        assert shells["ann"].returncode == 255
        assert shells["bob"].communicate("still here\n", 60)[0] == "still here\n"
        tool.write_text("#!/bin/sh\n")  # as for a user who may not read the log
        assert run(script, tmp_path) == "0 incomplete\n"
    finally:
        for shell in shells.values():
            shell.kill()
        server.stop()
