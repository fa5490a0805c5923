"""User data for cloud-init on the nodes and on the bastion.

The text depends only on the cluster file, the instance type and the cluster's public keys. A second
`up` therefore changes nothing, and an additional node changes no other. It contains no secret.
"""

import base64
import hashlib
from typing import Any

import yaml

from config.cluster.cluster_file import Cluster
from provision.health.facts import CHECKS
from provision.setup.lease.units import (
    EXTENSION_OF_BASTION,
    IDLE,
    LISTENER,
    NODES,
    idle_files,
    set_end,
)
from provision.setup.software.gpu_hardware import Hardware
from provision.setup.software.script import check_script, setup_script

STEPS = "/var/lib/gpuctl/steps"
"""A file on a node: the steps of its set-up that have begun, one per line; the last is `done`."""

REBOOTING = "rebooting"
"""The step that reboots the node; the remaining steps run after it."""

MARK = "==> "
"""The beginning of a step's line in /var/log/cloud-init-output.log."""

_ROOT_LOGIN = [
    "cloud-init-per",
    "instance",
    "gpuctl-root-login",
    "sed",
    "-i",
    "1i PermitRootLogin prohibit-password",
    "/etc/ssh/sshd_config",
]
"""Let root log in with a key, before sshd starts; sshd takes the first value that it reads.

Images that AWS provides refuse root by default ("What are best practices for accessing my EC2 Linux
instance securely using SSH",
https://aws.amazon.com/premiumsupport/knowledge-center/ec2-ssh-best-practices/, 2026-11-22), and
cloud-init's `disable_root: false` only leaves root's keys as they are. `bootcmd` runs in the stage
that ends before sshd.service starts
(https://github.com/canonical/cloud-init/blob/22.2.2/systemd/cloud-init.service.tmpl)."""


def node_user_data(cluster: Cluster, hardware: Hardware, *public_keys: str) -> str:
    """Return a multipart document: a cloud-config that lets root log in, and the set-up script.

    Everything that can fail is in the one script, which announces each step. A failing command is
    therefore reported within seconds, with its output. The script runs at every boot, and continues
    after the last finished step.
    """
    machine = _machine(cluster)
    idle = idle_files(cluster, "gpus" if hardware.gpus else "cpus")
    settings = {
        **machine,
        "bootcmd": [_ROOT_LOGIN, *machine.get("bootcmd", ())],
        "disable_root": False,
        "ssh_authorized_keys": list(public_keys),
        "write_files": [
            _file(CHECKS, check_script(cluster, hardware), "0755"),
            *(_file(path, text, "0644") for path, text in idle.items()),
            *(_file(path, text, "0644") for path, text in cluster.setup.files.items()),
        ],
        **({"runcmd": [_start(IDLE)]} if idle else {}),
    }
    return _multipart(
        ("text/cloud-config", "gpuctl.yaml", _document(settings)),
        ("text/x-shellscript-per-boot", "gpuctl-setup", setup_script(cluster, hardware)),
    )


def bastion_user_data(cluster: Cluster, *public_keys: str) -> str:
    """Return a cloud-config with the user `gpuctl`, who logs in with these keys and is not root.

    The user reads the machine's log: it shows `gpuctl revoke` which connections are whose. sshd
    accepts hundreds of connections at once; by default it drops connections if more than ten
    are not authenticated yet (sshd_config(5), MaxStartups).
    """
    sshd = "MaxStartups 500:30:1000\nPasswordAuthentication no\n"
    has_lease = cluster.lifetime is not None
    idle = idle_files(cluster, NODES)
    files = {**(EXTENSION_OF_BASTION if has_lease else {}), **idle}
    return _document(
        {
            **_machine(cluster),
            "users": [
                {
                    "name": "gpuctl",
                    "groups": "systemd-journal",
                    "shell": "/bin/bash",
                    "lock_passwd": True,
                    "ssh_authorized_keys": list(public_keys),
                }
            ],
            "write_files": [
                _file("/etc/ssh/sshd_config.d/50-gpuctl.conf", sshd, "0644"),
                *(_file(path, text, "0644") for path, text in files.items()),
            ],
            "runcmd": [
                ["systemctl", "try-reload-or-restart", "ssh"],
                *([_start(LISTENER)] if has_lease else ()),
                *([_start(IDLE)] if idle else ()),
            ],
        }
    )


def _machine(cluster: Cluster) -> dict[str, Any]:
    """Return the settings that all machines of the cluster have."""
    settings: dict[str, Any] = {
        "output": {"all": "| tee -a /var/log/cloud-init-output.log"},
        # Without the node's name in /etc/hosts mpirun waits for minutes. `localhost` keeps all
        # other lines of the file at a reboot.
        "manage_etc_hosts": "localhost",
        "ssh_deletekeys": True,
        "ssh_genkeytypes": ["ed25519"],
        "ssh_pwauth": False,
        "package_update": False,
        "package_upgrade": False,
    }
    if cluster.lifetime is not None:
        # `bootcmd` runs before the set-up, so that a machine whose set-up fails also ends in time.
        timer = set_end(cluster.lifetime.max)
        settings["bootcmd"] = [
            ["cloud-init-per", "instance", "gpuctl-lifetime", "/bin/sh", "-c", timer]
        ]
    return settings


def _start(unit: str) -> list[str]:
    """Return the command that starts a unit now and at each boot."""
    return ["systemctl", "enable", "--now", unit]


def _file(path: str, content: str, permissions: str) -> dict[str, str]:
    return {"path": path, "content": content, "permissions": permissions}


class _Literal(yaml.SafeDumper):
    """A YAML dumper that writes texts of several lines as `|` blocks, which people can read."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Literal.add_representer(str, _block)


def _document(settings: dict[str, Any]) -> str:
    text = yaml.dump(settings, Dumper=_Literal, sort_keys=False, width=10_000, allow_unicode=True)
    return f"#cloud-config\n{text}"


def _multipart(*parts: tuple[str, str, str]) -> str:
    """Return a MIME document of parts (content type, file name, text); the boundary is a digest.

    The same parts always give the same text.
    """
    digest = hashlib.sha256("".join(text for _, _, text in parts).encode()).hexdigest()[:32]
    boundary = f"gpuctl-{digest}"
    head = f'Content-Type: multipart/mixed; boundary="{boundary}"\nMIME-Version: 1.0\n\n'
    return head + "".join(f"--{boundary}\n{_part(*part)}\n" for part in parts) + f"--{boundary}--\n"


def _part(content_type: str, name: str, text: str) -> str:
    """Return one MIME part: plain text if it is ASCII, else base64, which cloud-init requires."""
    encoding, body = "7bit", text
    if not text.isascii():
        encoding, body = "base64", base64.encodebytes(text.encode()).decode()
    return (
        f'Content-Type: {content_type}; charset="utf-8"\n'
        f'Content-Disposition: attachment; filename="{name}"\n'
        f"Content-Transfer-Encoding: {encoding}\n\n{body}"
    )
