"""The scripts and units of a lease, as text for user data and for ssh."""

from collections.abc import Iterable
from pathlib import Path

from config.cluster.cluster_file import Cluster

_FOLDER = Path(__file__).parent


def _script(name: str) -> str:
    """Return a shell file without its comments: user data is small."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if not line.startswith("#"))


SECONDS_LEFT = _script("seconds_left.sh")
"""Prints the seconds until the machine powers off, or `none`."""

_SET_END = _script("set_end.sh")

REQUEST = "/home/gpuctl/lease"
"""The file on the bastion into which its user writes the seconds until the new end."""

LISTENER = "gpuctl-extend.path"

EXTENSION_OF_BASTION = {
    "/usr/local/lib/gpuctl/extend": f"set -e\n{_script('extend_bastion.sh')}{_SET_END}",
    "/etc/systemd/system/gpuctl-extend.service": (
        "[Unit]\n"
        "Description=Moves the end of the cluster's lifetime\n"
        "[Service]\n"
        "Type=oneshot\n"
        "ExecStart=/bin/sh /usr/local/lib/gpuctl/extend\n"
    ),
    f"/etc/systemd/system/{LISTENER}": (
        "[Unit]\n"
        "Description=Waits for requests to move the end of the cluster's lifetime\n"
        "[Path]\n"
        f"PathChanged={REQUEST}\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    ),
}
"""Files of the bastion, by their path. Its user cannot become root: root waits for a file of it."""


NODES = "/home/gpuctl/nodes"
"""The file on the bastion with the addresses of the nodes."""

IDLE = "gpuctl-idle.service"

_IDLE_PROGRAM = "/usr/local/lib/gpuctl/idle"

_DEAD_CLIENTS = "ClientAliveInterval 60\nClientAliveCountMax 3\n"
"""sshd ends the connections of clients that are gone: they would be logins for hours."""


def idle_files(cluster: Cluster, role: str) -> dict[str, str]:
    """Return the files of a machine that powers off when the cluster is idle, by their path.

    `role` is `gpus` or `cpus` for a node with GPUs or without, and NODES for the bastion. Without
    `lifetime.idle` there are none.
    """
    if cluster.lifetime is None or cluster.lifetime.idle is None:
        return {}
    arguments = f"{cluster.name} {cluster.lifetime.idle} {role}"
    return {
        "/etc/ssh/sshd_config.d/60-gpuctl-idle.conf": _DEAD_CLIENTS,
        _IDLE_PROGRAM: (_FOLDER / "idle_watch.py").read_text(encoding="utf-8"),
        f"/etc/systemd/system/{IDLE}": (
            "[Unit]\n"
            "Description=Powers off, and so terminates, when the cluster has been idle\n"
            "[Service]\n"
            f"ExecStart=/usr/bin/python3 {_IDLE_PROGRAM} {arguments}\n"
            "Restart=always\n"
            "RestartSec=5\n"
            "[Install]\n"
            "WantedBy=multi-user.target\n"
        ),
    }


def list_nodes(addresses: Iterable[str]) -> str:
    """Return the script with which the bastion's user keeps the addresses of the nodes."""
    return f"printf '%s\\n' {' '.join(addresses)} > {NODES}.new && mv {NODES}.new {NODES}"


def request_end(seconds: int) -> str:
    """Return the script with which the bastion's user lets it power off in `seconds`."""
    return f"""\
timer=/etc/systemd/system/gpuctl-lifetime.timer
before=$(cat $timer)
echo {seconds} > {REQUEST}.new
mv {REQUEST}.new {REQUEST}
for _ in $(seq 200); do
    [ "$(cat $timer)" = "$before" ] || exit 0
    sleep 0.1
done
echo 'its timer did not change in 20 s' >&2
exit 1
"""


def set_end(seconds: int) -> str:
    """Return the script that lets a machine power off in `seconds`, whatever its end was before."""
    return f"set -e\nseconds={seconds}\n{_SET_END}"
