"""What labs change of the host and share: forwarding, inotify, the folder of network namespaces.

Each lab that is up keeps a copy of how the host was before the first of them, so that the last
one to go can put it back, in whatever order they go and after a crash. Forwarding stays on where
others on the host may have come to need it.
"""

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from lab.host_commands import call, is_mounted
from lab.network import slots
from lab.places import Places, everywhere, make_private

log = logging.getLogger(__name__)

NAMESPACES = Path("/run/netns")
"""`ip netns` mounts it for the first namespace, and leaves it."""

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_FORWARDED_KINDS = frozenset({"bridge", "veth", "macvlan", "ipvlan", "tun", "wireguard"})
"""Links of docker, podman and libvirt are bridges and veth, of VPNs tun and wireguard. Nothing says
who switched forwarding on, or who needs it: whoever has such a link is taken to."""

_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_NEEDED = 8192
"""All machines of all labs are one user to the kernel, root, which may have 128 by default. The
systemd of a machine needs some ten; without them it does not boot: "Too many open files"."""


class Former(TypedDict):
    """How the host was before any lab came up; `inotify` is empty until a lab raises that limit."""

    ip_forward: str
    inotify: str
    namespaces: bool


def remember(places: Places) -> bool:
    """Keep how the host was before any lab; return whether it forwarded packets then."""
    with slots.exclusively():
        others = (_former(other) for other in _others(places))
        former = _former(places) or next(others, None) or _now()
        make_private(places.runtime)
        _write(places, former)
    return former["ip_forward"] == "1"


def enable() -> None:
    """Have the host forward packets. `remember` comes first."""
    _FORWARD.write_text("1\n")


def allow_machines(places: Places) -> None:
    """Raise the host's limit of inotify instances to what many machines need."""
    with slots.exclusively():
        limit = _INOTIFY.read_text().strip()
        if int(limit) >= _INOTIFY_NEEDED:
            return
        former = _former(places)
        if former is not None:
            _write(places, {**former, "inotify": limit})
        _INOTIFY.write_text(f"{_INOTIFY_NEEDED}\n")


def is_remembered(places: Places) -> bool:
    """Return whether this lab may have changed the host, and has not given that back."""
    return _file(places).exists()


def give_back(places: Places) -> None:
    """Forget it for this lab; the last lab puts the host back. A second call is fine."""
    with slots.exclusively():
        former = _former(places)
        if former is None:
            return
        _file(places).unlink()
        others = _others(places)
        for other in others:
            theirs = _former(other)
            if theirs is not None and not theirs["inotify"]:
                _write(other, {**theirs, "inotify": former["inotify"]})
        if not others:
            _give_back_forwarding(former["ip_forward"])
            # A limit that no lab of ours raised is not ours to lower: machines of labs in another
            # /run (a container's) may need it.
            if former["inotify"]:
                _give_back_inotify(former["inotify"])
            is_ours = is_mounted(NAMESPACES) and not former["namespaces"]
            if is_ours and not any(NAMESPACES.iterdir()):
                call("umount", NAMESPACES)


def _give_back_forwarding(former: str) -> None:
    """Write the earlier value, unless that stops packets of somebody who came meanwhile."""
    others = _links_of_others() if former == "0" else ()
    if others:
        log.info("net.ipv4.ip_forward stays 1: %s may need it", ", ".join(others))
    else:
        _FORWARD.write_text(former + "\n")


def _give_back_inotify(former: str) -> None:
    """Write the earlier limit, unless so many instances are open that machines would fail by it."""
    used = _inotify_instances()
    if used > int(former) // 2:
        log.info("fs.inotify.max_user_instances stays raised: %d instances are open", used)
    else:
        _INOTIFY.write_text(former + "\n")


def _inotify_instances() -> int:
    """Return how many inotify instances are open on this machine."""
    count = 0
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # closed, or its process has ended
            count += descriptor.readlink().name == "anon_inode:inotify"
    return count


def _links_of_others() -> tuple[str, ...]:
    """Return the host's links of containers, virtual machines and VPNs; labs' own are gone."""
    links = json.loads(call("ip", "-details", "-json", "link", "show"))
    kinds = {link["ifname"]: link.get("linkinfo", {}).get("info_kind") for link in links}
    return tuple(sorted(name for name, kind in kinds.items() if kind in _FORWARDED_KINDS))


def _now() -> Former:
    return {
        "ip_forward": _FORWARD.read_text().strip(),
        "inotify": "",
        "namespaces": is_mounted(NAMESPACES),
    }


def _former(places: Places) -> Former | None:
    try:
        former: Former = json.loads(_file(places).read_text())
    except FileNotFoundError:
        return None
    return former


def _others(places: Places) -> list[Places]:
    """Return the other labs that may have changed the host."""
    return [lab for lab in everywhere() if lab != places and _file(lab).exists()]


def _write(places: Places, former: Former) -> None:
    _file(places).write_text(json.dumps(former))


def _file(places: Places) -> Path:
    return places.runtime / "network.json"
