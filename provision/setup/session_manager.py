"""ssh through AWS's Session Manager, without an open port and without a bastion.

gpuctl calls StartSession with the target's credentials, and passes the answer, which contains a
token, to AWS's `session-manager-plugin` in an environment variable. The AWS CLI does the same since
plugin 1.2.536.0 (aws-cli, pull request 8336; the plugin's release notes, read 2026-11-20).
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from config.cluster.cluster_file import Cluster
from config.errors import InputError, NodeError
from config.target import Target
from nodes.inventory import Node
from provision.aws.clients import aws_errors, client

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

DOCUMENT = "AWS-StartSSHSession"
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"

OLDEST = (1, 2, 536, 0)
"""The first version of the plugin that reads StartSession's answer from a variable."""


def version_text(version: Sequence[int]) -> str:
    """Return a version as text with dots."""
    return ".".join(map(str, version))


INSTALL = (
    f"install AWS's session-manager-plugin, {version_text(OLDEST)} or newer: https://docs.aws.amazon.com/"
    "systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)

_VERSION_S = 10

ONLINE_PATIENCE_S = 300
"""An agent registers within a minute of its start; cloud-init may delay its start."""

_PAUSE_S = 5.0
_MOST_IDS = 50
"""The most ids in one filter of DescribeInstanceInformation that give an answer of one page."""


def plugin_path(target: Target) -> str | None:
    """Return the path of the target's plugin, or None if it is not on PATH."""
    return shutil.which(target.session_plugin[0])


def plugin_version(command: Sequence[str], most_s: float = _VERSION_S) -> tuple[int, ...] | None:
    """Return the version that the plugin prints within `most_s`, or None if it prints none.

    `session-manager-plugin --version` prints the number alone (sessionmanagerplugin/session/
    session.go of aws/session-manager-plugin@040f79d7).
    """
    try:
        done = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=most_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = re.fullmatch(r"\d+(\.\d+)+", done.stdout.strip())
    return tuple(map(int, number[0].split("."))) if number else None


def plugin_problem(command: Sequence[str]) -> str:
    """Return the reason why the plugin cannot be used, empty if it can."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not on PATH"
    version = plugin_version(command)
    if version is None:
        return f"`{shlex.join(command)} --version` prints no version"
    if version < OLDEST:
        return f"{command[0]} is {version_text(version)}, older than {version_text(OLDEST)}"
    return ""


def check_plugin(cluster: Cluster, target: Target) -> None:
    """Raise InputError if the cluster needs the plugin and the plugin cannot be used."""
    if cluster.network.uses_session_manager and (problem := plugin_problem(target.session_plugin)):
        raise InputError(f"network.access is ssm, but {problem}", INSTALL)


def become_session(instance_id: str, target: Target) -> None:
    """Replace this process by the plugin, which connects stdin and stdout to the instance's sshd.

    Raises CloudError if AWS refuses the session, InputError without the plugin.
    """
    plugin = plugin_path(target)
    if plugin is None:
        raise InputError(f"{target.session_plugin[0]} is not on PATH", INSTALL)
    request = {
        "Target": instance_id,
        "DocumentName": DOCUMENT,
        "Parameters": {"portNumber": ["22"]},
    }
    ssm = client(target, "ssm")
    with aws_errors():
        started = ssm.start_session(
            Target=instance_id, DocumentName=DOCUMENT, Parameters={"portNumber": ["22"]}
        )
    answer = {key: started[key] for key in ("SessionId", "StreamUrl", "TokenValue")}
    profile = target.environment.get("AWS_PROFILE", "")
    words = [*target.session_plugin, RESPONSE, target.region, "StartSession", profile]
    words += [json.dumps(request), ssm.meta.endpoint_url]
    environment = {**os.environ, **target.environment, RESPONSE: json.dumps(answer)}
    os.execve(plugin, words, environment)  # noqa: S606


class Agents:
    """The SSM agents of a cluster's nodes; they register some time after the boot."""

    def __init__(
        self, ssm: "SSMClient", nodes: Sequence[Node], patience_s: float = ONLINE_PATIENCE_S
    ) -> None:
        self._ssm, self._patience_s = ssm, patience_s
        self._nodes = {node.instance_id: node for node in nodes}
        self._online = {node.instance_id: asyncio.Event() for node in nodes}

    async def wait_until_online(self, node: Node) -> None:
        """Wait until Session Manager reaches the node; raise NodeError if it does not in time."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._online[node.instance_id].wait()
        except TimeoutError:
            raise NodeError(
                f"{node.name} ({node.instance_id}) is not online in Session Manager after"
                f" {self._patience_s // 60:.0f} min",
                "its image must have AWS's SSM agent, and its subnet must reach the endpoints ssm,"
                " ssmmessages and ec2messages; check the instance's console output",
            ) from None

    async def watch(self) -> None:
        """Ask Session Manager until every node is online."""
        while waiting := [
            instance for instance, event in self._online.items() if not event.is_set()
        ]:
            for start in range(0, len(waiting), _MOST_IDS):
                for instance in await asyncio.to_thread(
                    self._ask, waiting[start : start + _MOST_IDS]
                ):
                    self._online[instance].set()
            if not all(event.is_set() for event in self._online.values()):
                await asyncio.sleep(_PAUSE_S)

    def _ask(self, ids: Sequence[str]) -> list[str]:
        with aws_errors():
            agents = self._ssm.describe_instance_information(
                Filters=[{"Key": "InstanceIds", "Values": list(ids)}], MaxResults=50
            )["InstanceInformationList"]
        return [instance["InstanceId"] for instance in agents if instance["PingStatus"] == "Online"]
