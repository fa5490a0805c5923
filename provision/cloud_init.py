"""What cloud-init does on the machines: user data for nodes and for the bastion.

The text depends on the cluster file and the client's public key alone, so that a second `up`
finds nothing to change and a node more touches no other. It holds no secret.
"""

import shlex
from typing import Any

import yaml

from config.cluster import Cluster
from config.resolved import Image

SETUP = "/opt/gpuctl/setup"
STEPS = "/var/lib/gpuctl/steps"
"""On a node: the steps of `SETUP` that were begun, one per line; the last is `done`."""

DONE = "done"
MARK = "==> "
"""Begins a step in /var/log/cloud-init-output.log."""

_LIFETIME = """\
at=$(date -u -d '+{seconds} seconds' '+%Y-%m-%d %H:%M:%S UTC')
cat > /etc/systemd/system/gpuctl-lifetime.service <<END
[Unit]
Description=The cluster's lifetime is over
[Service]
Type=oneshot
ExecStart=/bin/systemctl poweroff
END
cat > /etc/systemd/system/gpuctl-lifetime.timer <<END
[Unit]
Description=Powers off, and so terminates, when the cluster's lifetime is over
[Timer]
OnCalendar=$at
Persistent=true
AccuracySec=1s
[Install]
WantedBy=timers.target
END
systemctl daemon-reload
systemctl enable gpuctl-lifetime.timer
systemctl start --no-block gpuctl-lifetime.timer
"""

_APT = """\
APT::Periodic::Update-Package-Lists "0";
APT::Periodic::Unattended-Upgrade "0";
DPkg::Lock::Timeout "300";
Acquire::Retries "3";
"""
"""A kernel or driver that upgrades itself under a running job breaks it; and a first boot's own
package run holds the lock for a while."""

_SETUP_HEAD = f"""\
#!/bin/bash
# What gpuctl adds to the image, in order; the first failure ends it, and cloud-init reports it.
set -e
export HOME=/root DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
cd /root
mkdir -p /var/lib/gpuctl
: > {STEPS}
gpuctl_step() {{ gpuctl_now=$1; echo "{MARK}$1"; echo "$1" >> {STEPS}; }}
gpuctl_end() {{
  code=$?
  [ $code -eq 0 ] || echo "gpuctl: '$gpuctl_now' failed with exit code $code"
  exit $code
}}
trap gpuctl_end EXIT

gpuctl_step 'host keys'
# cloud-init prints them at the end of the boot; the client pins them from here on.
{{
  echo '-----BEGIN SSH HOST KEY KEYS-----'
  cat /etc/ssh/ssh_host_ed25519_key.pub
  echo '-----END SSH HOST KEY KEYS-----'
}} > /dev/console || true

gpuctl_step 'limits'
# EFA registers memory. Where raising the limit is not permitted, asking for it would lock out ssh.
if (ulimit -l unlimited) 2>/dev/null; then
  printf '%s - memlock unlimited\\n' '*' root > /etc/security/limits.d/90-gpuctl.conf
  mkdir -p /etc/systemd/system.conf.d
  printf '[Manager]\\nDefaultLimitMEMLOCK=infinity\\n' > /etc/systemd/system.conf.d/gpuctl.conf
  systemctl daemon-reexec
else
  echo "locked memory stays at $(ulimit -l) KiB: this machine does not permit more"
fi
"""

_INSTALL = """\
gpuctl_step 'packages'
systemctl mask --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service || true
apt-get update -q
apt-get install -y -q --no-install-recommends {packages}
"""

_OPEN_MPI_STOCK = """\
gpuctl_step 'install Open MPI'
if ! command -v mpirun; then
  apt-get update -q
  apt-get install -y -q --no-install-recommends openmpi-bin
fi
"""

_OPEN_MPI_CHECK = """\
gpuctl_step 'check Open MPI'
# Shells that are no login shells, and units, search here; AWS's images put it aside.
if [ -x /opt/amazon/openmpi/bin/mpirun ]; then
  ln -sf /opt/amazon/openmpi/bin/* /usr/local/bin/
fi
if ! command -v mpirun; then
  echo "this image has no mpirun: add openmpi-bin to software.packages"
  exit 1
fi
mpirun --version
"""


def node_user_data(cluster: Cluster, image: Image, public_key: str) -> str:
    """A cloud-config: root is entered by `public_key`, and the software is set up.

    What can fail runs last, in one script of which every step is announced, so that a failing
    command shows within seconds, with its own output.
    """
    return _document(
        {
            **_machine(cluster),
            "disable_root": False,
            "ssh_authorized_keys": [public_key],
            "write_files": [
                _file("/etc/apt/apt.conf.d/90gpuctl", _APT, "0644"),
                _file(SETUP, setup_script(cluster, image), "0700"),
            ],
            "runcmd": [[SETUP]],
        }
    )


def bastion_user_data(cluster: Cluster, public_key: str) -> str:
    """A cloud-config: user `gpuctl`, who may not become root, passes through by `public_key`.

    sshd takes hundreds of connections at once: by default it drops them beyond ten that are not
    yet authenticated (sshd_config(5), MaxStartups).
    """
    sshd = "MaxStartups 500:30:1000\nPasswordAuthentication no\n"
    return _document(
        {
            **_machine(cluster),
            "users": [
                {
                    "name": "gpuctl",
                    "shell": "/bin/bash",
                    "lock_passwd": True,
                    "ssh_authorized_keys": [public_key],
                }
            ],
            "write_files": [_file("/etc/ssh/sshd_config.d/50-gpuctl.conf", sshd, "0644")],
            "runcmd": [["systemctl", "try-reload-or-restart", "ssh"]],
        }
    )


def setup_script(cluster: Cluster, image: Image) -> str:
    """The bash script that runs once on a node; the user's commands are its last steps."""
    parts = [_SETUP_HEAD]
    if cluster.software.packages:
        packages = " ".join(shlex.quote(name) for name in cluster.software.packages)
        parts.append(_INSTALL.format(packages=packages))
    if not image.has_software:
        parts.append(_OPEN_MPI_STOCK)
    parts.append(_OPEN_MPI_CHECK)
    for number, command in enumerate(cluster.software.setup, 1):
        title = f"setup {number} of {len(cluster.software.setup)}: {_title(command)}"
        parts.append(f"gpuctl_step {shlex.quote(title)}\n{command.rstrip()}\n")
    parts.append(f"gpuctl_step {DONE}\n")
    return "\n".join(parts)


def _machine(cluster: Cluster) -> dict[str, Any]:
    """What every machine of the cluster has."""
    settings: dict[str, Any] = {
        "output": {"all": "| tee -a /var/log/cloud-init-output.log"},
        # Without an /etc/hosts mpirun waits minutes for its own name.
        "manage_etc_hosts": True,
        "ssh_deletekeys": True,
        "ssh_genkeytypes": ["ed25519"],
        "ssh_pwauth": False,
        "package_update": False,
        "package_upgrade": False,
    }
    if cluster.lifetime is not None:
        # First of all, so that a machine whose set-up fails ends in time as well.
        timer = _LIFETIME.format(seconds=cluster.lifetime.max)
        settings["bootcmd"] = [
            ["cloud-init-per", "instance", "gpuctl-lifetime", "/bin/sh", "-c", timer]
        ]
    return settings


def _title(command: str) -> str:
    """A command's first line, short enough for a line of progress."""
    first = command.strip().partition("\n")[0]
    return first if len(first) <= 60 else f"{first[:57]}..."


def _file(path: str, content: str, permissions: str) -> dict[str, str]:
    return {"path": path, "content": content, "permissions": permissions}


class _Literal(yaml.SafeDumper):
    """Writes texts of several lines as YAML's `|` blocks: user data is read by people."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Literal.add_representer(str, _block)


def _document(settings: dict[str, Any]) -> str:
    text = yaml.dump(settings, Dumper=_Literal, sort_keys=False, width=10_000, allow_unicode=True)
    return f"#cloud-config\n{text}"
