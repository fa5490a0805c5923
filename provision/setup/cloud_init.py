"""What cloud-init does on the machines: user data for nodes and for the bastion.

The text depends on the cluster file, the instance type and the client's public key alone, so that
a second `up` finds nothing to change and a node more touches no other. It holds no secret.
"""

import base64
import hashlib
from typing import Any

import yaml

from config.cluster.cluster_file import Cluster
from provision.setup.software.gpu_hardware import Hardware
from provision.setup.software.script import check_script, setup_script

CHECKS = "/opt/gpuctl/verify"
"""On a node: says, a line each, whether the node is what it should be."""

STEPS = "/var/lib/gpuctl/steps"
"""On a node: the steps of its set-up that were begun, one per line; the last is `done`."""

REBOOTING = "rebooting"
"""Among the steps: the node goes down and comes back to finish them."""

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


def node_user_data(cluster: Cluster, hardware: Hardware, public_key: str) -> str:
    """A multipart document: a cloud-config by which root is entered, and the set-up script.

    What can fail is in one script of which every step is announced, so that a failing command
    shows within seconds, with its own output. It runs at every boot, and goes on where it stopped.
    """
    settings = {
        **_machine(cluster),
        "disable_root": False,
        "ssh_authorized_keys": [public_key],
        "write_files": [
            _file(CHECKS, check_script(cluster, hardware), "0755"),
            *(_file(path, text, "0644") for path, text in cluster.setup.files.items()),
        ],
    }
    return _multipart(
        ("text/cloud-config", "gpuctl.yaml", _document(settings)),
        ("text/x-shellscript-per-boot", "gpuctl-setup", setup_script(cluster, hardware)),
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


def _machine(cluster: Cluster) -> dict[str, Any]:
    """What every machine of the cluster has."""
    settings: dict[str, Any] = {
        "output": {"all": "| tee -a /var/log/cloud-init-output.log"},
        # Without its own name in /etc/hosts mpirun waits minutes; the other lines stay at a reboot.
        "manage_etc_hosts": "localhost",
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


def _multipart(*parts: tuple[str, str, str]) -> str:
    """MIME parts of a content type, a file name and a text each; the same parts, the same text."""
    digest = hashlib.sha256("".join(text for _, _, text in parts).encode()).hexdigest()[:32]
    boundary = f"gpuctl-{digest}"
    head = f'Content-Type: multipart/mixed; boundary="{boundary}"\nMIME-Version: 1.0\n\n'
    return head + "".join(f"--{boundary}\n{_part(*part)}\n" for part in parts) + f"--{boundary}--\n"


def _part(content_type: str, name: str, text: str) -> str:
    """Readable where it is ASCII; cloud-init reads no other letters but in base64."""
    encoding, body = "7bit", text
    if not text.isascii():
        encoding, body = "base64", base64.encodebytes(text.encode()).decode()
    return (
        f'Content-Type: {content_type}; charset="utf-8"\n'
        f'Content-Disposition: attachment; filename="{name}"\n'
        f"Content-Transfer-Encoding: {encoding}\n\n{body}"
    )
