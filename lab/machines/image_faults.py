"""Faults of a machine's image: files that make a machine behave as some images of AWS do.

`gpuctl lab fault set root-login off`: machines that are launched while the fault is set have them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.fault_table import CLOUD_INIT, FABRIC_MANAGER, ROOT_LOGIN, SLOW_BOOT

BOOTED = "etc/gpuctl-lab/instance-type.json"
"""A file that the lab writes when a machine boots: its age is that of the boot."""


@dataclass(frozen=True)
class FaultyFile:
    """A file of a machine, by its path without the leading slash."""

    path: str
    text: str
    mode: int = 0o644


def faulty_files(faults: Mapping[str, tuple[str, ...]]) -> tuple[FaultyFile, ...]:
    """Return the files of the faults that are set."""
    return tuple(_FILES[name](*arguments) for name, arguments in faults.items() if name in _FILES)


def _old_cloud_init(version: str) -> FaultyFile:
    """Return a cloud-init for people and gpuctl; units of the boot call /usr/bin/cloud-init.

    Options and words of the error are those of 22.2.2:
    https://github.com/canonical/cloud-init/blob/22.2.2/cloudinit/cmd/status.py (2026-11-22).
    """
    script = f"""\
#!/bin/sh
case "$1" in
  -v | --version)
    echo "/usr/bin/cloud-init {version}"
    exit 0 ;;
  status)
    shift
    for word in "$@"; do
      case "$word" in
        -l | --long | -w | --wait | -h | --help) ;;
        *)
          echo "/usr/bin/cloud-init: error: unrecognized arguments: $*" >&2
          exit 2 ;;
      esac
    done
    exec /usr/bin/cloud-init status "$@" ;;
esac
exec /usr/bin/cloud-init "$@"
"""
    return FaultyFile("usr/local/bin/cloud-init", script, 0o755)


def _no_root_login(_: str) -> FaultyFile:
    """Return a setting of sshd that comes before those of the image and of cloud-init."""
    return FaultyFile("etc/ssh/sshd_config.d/01-permitrootlogin.conf", "PermitRootLogin no\n")


def _late_fabric_manager(_: str, seconds: str) -> FaultyFile:
    """Return a setting that lets the service fail in a machine's first seconds.

    The GPUs' part of the fabric is not ready when cloud-init runs: the service ends with an error
    (https://github.com/pytorch/ci-infra/pull/552, 2026-11-22).
    """
    age = f"$$(( $$(date +%%s) - $$(stat -c %%Y /{BOOTED}) ))"
    complaint = "not all local fabric manager instances finished their configuration"
    check = f"[ {age} -ge {seconds} ] || {{ echo {complaint}; exit 1; }}"
    text = f"[Service]\nExecStartPre=/bin/sh -c '{check}'\n"
    return FaultyFile("etc/systemd/system/nvidia-fabricmanager.service.d/late.conf", text)


def _slow_boot(seconds: str) -> FaultyFile:
    """Return a setting that delays cloud-init, and with it network, ssh and the host keys."""
    text = f"[Service]\nExecStartPre=/bin/sleep {seconds}\nTimeoutStartSec=infinity\n"
    return FaultyFile("etc/systemd/system/cloud-init-local.service.d/slow.conf", text)


_FILES: Mapping[str, Callable[..., FaultyFile]] = {
    CLOUD_INIT: _old_cloud_init,
    ROOT_LOGIN: _no_root_login,
    FABRIC_MANAGER: _late_fabric_manager,
    SLOW_BOOT: _slow_boot,
}
