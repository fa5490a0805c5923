"""Evidence about a machine of the lab that no longer accepts logins.

The host runs the commands in the machine's namespaces, so they need no network of the machine.
Time and size are limited. If a source fails, its text contains the error.
"""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from lab.machines import cgroups
from lab.places import Places

LIMIT_S = 5.0
_SIZE = 64 * 1024  # characters of a source to keep: the last ones

_INSIDE = {
    "neighbours": "ip -s neigh show",
    "interfaces": "ip -s -s address show; ip route show",
    "sockets": "ss -tuinopa",
    "processes": "ps -eo pid,ppid,stat,wchan:24,pcpu,rss,etime,args",
    "units": "systemctl --no-pager list-units --all 'gpuctl-run-*'; systemctl list-jobs",
    "log": "journalctl --no-pager --lines=300",
}


def evidence(places: Places, instance_id: str) -> dict[str, str]:
    """Return the evidence of machine and host: source names mapped to texts."""
    leader = find_leader(places, instance_id)
    commands = {"links": _links(leader), "kernel": ["dmesg", "--ctime"]}
    if leader is not None:
        inside = [
            "nsenter",
            f"--target={leader}",
            "--user",
            "--mount",
            "--uts",
            "--net",
            "--pid",
            "--ipc",
        ]
        for source, line in _INSIDE.items():
            commands[source] = [*inside, "/bin/sh", "-c", line]
    with ThreadPoolExecutor(len(commands)) as pool:
        texts = dict(zip(commands, pool.map(_output_of, commands.values()), strict=True))
    if leader is None:
        texts["processes"] = f"machine {instance_id} does not run\n"
    texts["stacks"] = _stacks(places, instance_id)
    texts["load"] = _files(Path("/proc/loadavg"), *sorted(Path("/proc/pressure").glob("*")))
    texts["console"] = _files(places.machines / instance_id / "console")
    return texts


def find_leader(places: Places, instance_id: str) -> int | None:
    """Return the host's id of the machine's process 1; None if the machine does not run."""
    for pid in cgroups.processes(places, instance_id):
        numbers = _status(pid).get("NSpid", "").split()
        if len(numbers) > 1 and numbers[1] == "1":
            return pid
    return None


def _links(leader: int | None) -> list[str]:
    """Return the command that shows the lab's bridge; systemd-nspawn runs in its namespace."""
    nspawn = _status(leader).get("PPid", "") if leader is not None else ""
    shown = ["sh", "-c", "ip -s -d link show; bridge fdb show; ip neigh show"]
    return ["nsenter", f"--net=/proc/{nspawn}/ns/net", *shown] if nspawn else ["true"]


def _status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status; none if the process has ended."""
    with suppress(OSError):  # it has ended
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def _stacks(places: Places, instance_id: str) -> str:
    """Return the kernel stacks of the machine's processes, which show where they wait."""
    texts = []
    for pid in sorted(cgroups.processes(places, instance_id)):
        status = _status(pid)
        with suppress(OSError):  # it has ended
            stack = Path(f"/proc/{pid}/stack").read_text()
            texts.append(f"{pid} {status.get('Name')} {status.get('State')}\n{stack}")
    return "\n".join(texts)[-_SIZE:]


def _files(*paths: Path) -> str:
    texts = []
    for path in paths:
        try:
            texts.append(f"{path}\n{path.read_bytes().decode(errors='replace')[-_SIZE:]}")
        except OSError as error:
            texts.append(f"{path}: {error.strerror}\n")
    return "\n".join(texts)


def _output_of(argv: list[str]) -> str:
    """Return a line with the command and the time, followed by the command's output."""
    head = f"$ {' '.join(argv)}   # {time.strftime('%H:%M:%S UTC', time.gmtime())}\n"
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return f"{head}{error}\n"
    try:
        output, ended = process.communicate(timeout=LIMIT_S)[0], ""
    except subprocess.TimeoutExpired as late:
        output, ended = late.output or b"", f"\n(not done within {LIMIT_S:g} s)\n"
        process.kill()  # and do not wait for it: a process that hangs in the kernel does not end
    return head + output.decode(errors="replace")[-_SIZE:] + ended
