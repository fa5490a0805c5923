"""Two nodes of one machine, with the same GPUs: each has its network, its names and its sshd.

What gpuctl writes on them is in memory, and gone with them.
"""

import ipaddress
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NODES = ("gpuctl-check-0", "gpuctl-check-1")
"""The names of the nodes' network namespaces."""
_ADDRESSES = ("198.18.77.2", "198.18.77.6")
_INTERNAL = ("198.18.77.9", "198.18.77.10")
"""Addresses for tests between devices (RFC 2544): for this machine, and between the nodes. A bridge
would let the machine's firewall forbid what passes it."""
_START_S = 20.0

# $1 is the node's folder, $2 its number, $3 sshd, $4 the home of root. sshd is the first process:
# all others end with it.
_NODE = r"""
set -e
mount --make-rprivate /
hostname "gpu-check-$2"
mkdir "$1/lib" && mount --bind /var/lib "$1/lib"
mount -t tmpfs tmpfs /var/lib && ln -s "$1"/lib/* /var/lib/
mount -t tmpfs tmpfs /run && mkdir /run/sshd
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=700 tmpfs "$4/.ssh" && cp "$1/../key.pub" "$4/.ssh/authorized_keys"
mount -t tmpfs tmpfs /etc/ssh && mkdir /etc/ssh/ssh_config.d
echo 'Include /etc/ssh/ssh_config.d/*.conf' > /etc/ssh/ssh_config
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
printf '%s\n' 'HostKey /etc/ssh/ssh_host_ed25519_key' 'PermitRootLogin prohibit-password' \
  'StrictModes no' > /etc/ssh/sshd_config
grep -v '^sshd:' /etc/passwd > "$1/passwd"
echo 'sshd:x:64999:65534::/run/sshd:/bin/false' >> "$1/passwd"
printf '%032d\n' "$2" > "$1/machine-id"
printf '127.0.0.1 localhost\n' > "$1/hosts"
for file in passwd machine-id hosts; do
  [ ! -e "/etc/$file" ] || mount --bind "$1/$file" "/etc/$file"
done
exec "$3" -D -e -f /etc/ssh/sshd_config
"""


def sshd() -> str | None:
    """Return the path of sshd, which is often in no PATH but root's; None if there is none."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def two_nodes(cluster: str) -> Iterator[str]:
    """Start the nodes, and yield a cluster file of them; end them at the end of the block.

    Raises OSError or CalledProcessError where that is not possible: it takes root, sshd, iproute2
    and the right to make namespaces.
    """
    program = sshd()
    if program is None:
        raise FileNotFoundError("there is no sshd on this machine")
    home = Path("~root").expanduser()
    with ExitStack() as end:
        folder = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="gpuctl-two-nodes-")))
        key = folder / "key"
        _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        if not (home / ".ssh").exists():
            (home / ".ssh").mkdir(mode=0o700)
            end.callback((home / ".ssh").rmdir)
        for space in NODES:
            _call("ip", "netns", "add", space)
            end.callback(_call, "ip", "netns", "delete", space)
            _call("ip", "-n", space, "link", "set", "lo", "up")
        for number, (space, address) in enumerate(zip(NODES, _ADDRESSES, strict=True)):
            outside = str(ipaddress.IPv4Address(address) - 1)
            _connect((f"gpuctl-c{number}", "", outside), ("gpuctl0", space, address))
        first, second = zip(("gpuctl1", "gpuctl1"), NODES, _INTERNAL, strict=True)
        _connect(first, second)
        for number, (space, address) in enumerate(zip(NODES, _ADDRESSES, strict=True)):
            own = folder / str(number)
            own.mkdir()
            words = ["sh", "-c", _NODE, "sh", str(own), str(number), program, str(home)]
            end.enter_context(_node(space, words, address, own / "log"))
        hosts = ", ".join(
            f"{{address: {address}, internal: {internal}}}"
            for address, internal in zip(_ADDRESSES, _INTERNAL, strict=True)
        )
        yield f"name: {cluster}\nuser: root\nidentity: {key}\nhosts: [{hosts}]\n"


def _connect(end: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Connect two ends, each a name of an interface, its network namespace, and its address.

    Both ends go with their namespaces. The name of none is empty.
    """
    places = [["netns", space] if space else [] for _, space, _ in (end, other)]
    add = ["ip", "link", "add", "name", end[0], *places[0], "type", "veth"]
    _call(*add, "peer", "name", other[0], *places[1])
    for name, space, address in (end, other):
        ip = ["ip", "-n", space] if space else ["ip"]
        _call(*ip, "address", "add", f"{address}/30", "dev", name)
        _call(*ip, "link", "set", name, "up")


@contextmanager
def _node(space: str, words: list[str], address: str, log: Path) -> Iterator[None]:
    namespaces = ["--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, "unshare", *namespaces, *words],
            stdin=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C must leave the nodes to `down`
        )
    try:
        _wait_for_sshd(process, address, log)
        yield
    finally:
        process.kill()  # unshare takes its child with it, and ignores SIGTERM
        process.wait()


def _wait_for_sshd(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    scan = ["ssh-keyscan", "-T", "1", "-t", "ed25519", address]
    while not subprocess.run(scan, capture_output=True, check=False).stdout:
        if process.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"sshd does not start: {log.read_text(errors='replace').strip()}")
        time.sleep(0.1)


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
