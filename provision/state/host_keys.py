"""Host keys, read from the EC2 console and pinned before the first connection.

cloud-init prints each key on the console, and AWS's API returns the console's text. An attacker
between the client and a new machine can therefore not present another key.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BrokenNodes, CloudError
from config.files import write_whole
from config.progress import Progress, Reporter
from nodes.openssh import known_hosts_name
from provision.aws.clients import DENIED, UNIVERSAL, aws_errors
from provision.aws.resources import ALIVE

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_BLOCK = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.S)
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}(?![A-Za-z0-9+/=])")

BOOT_LIMIT_S = 1200
"""The largest GPU instances take ten minutes or more from launch to cloud-init."""

METAL_LIMIT_S = 3600
"""Bare metal takes longer, and AWS posts its console only some time after the boot."""


@dataclass(frozen=True)
class BootingMachine:
    """A machine that boots, with the address at which the client reaches it."""

    name: str
    instance_id: str
    address: str
    port: int = 22


def boot_limit_s(instance_type: str) -> int:
    """Return how many seconds an instance of the type may take until its host key is known."""
    return METAL_LIMIT_S if ".metal" in instance_type else BOOT_LIMIT_S


def read_host_key(console: str) -> str | None:
    """Return the last whole ed25519 host key on the console, as `ssh-ed25519 AAAA…`, or None.

    A key that is truncated or broken by another message does not count.
    """
    for block in reversed(_BLOCK.findall(console)):
        if match := _KEY.search(block):
            return match[0]
    return None


@dataclass
class KnownHosts:
    """The cluster's known_hosts file; each line ends with the id of the key's instance."""

    path: Path
    keys: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, machines: Sequence[BootingMachine]) -> "KnownHosts":
        """Return the keys that are pinned for these instances; drop those of all others."""
        known = cls(path)
        lines = path.read_text().splitlines() if path.exists() else []
        expected = {(known_hosts_name(m.address, m.port), m.instance_id) for m in machines}
        for line in lines:
            name, _, rest = line.partition(" ")
            key, _, instance_id = rest.rpartition(" ")
            if (name, instance_id) in expected:
                known.keys[name, instance_id] = key
        return known

    def key(self, machine: BootingMachine) -> str | None:
        """Return the pinned key of the machine, or None."""
        return self.keys.get((known_hosts_name(machine.address, machine.port), machine.instance_id))

    def pin(self, machine: BootingMachine, key: str) -> None:
        """Pin the machine's key, and write it to disk."""
        self.keys[known_hosts_name(machine.address, machine.port), machine.instance_id] = key
        self.write()

    def write(self) -> None:
        """Write the pinned keys and no others to the file, whole or not at all."""
        text = "".join(f"{name} {key} {who}\n" for (name, who), key in sorted(self.keys.items()))
        write_whole(self.path, text)


class BootWatch:
    """A watcher of machines that boot: it pins their host keys, and fails if a machine ends."""

    def __init__(
        self,
        ec2: "EC2Client",
        machines: Sequence[BootingMachine],
        known: KnownHosts,
        report: Reporter,
        limit_s: int = BOOT_LIMIT_S,
    ) -> None:
        self._ec2 = ec2
        self._limit_s = limit_s
        self._without_latest: set[str] = set()
        self._errors: dict[str, str] = {}
        self._machines = tuple(machines)
        self._known = known
        self._report = report
        self._pinned = {machine.name: asyncio.Event() for machine in machines}
        for machine in machines:
            if known.key(machine) is not None:
                self._pinned[machine.name].set()
            else:
                report(Progress("boot", machine.name, "running"))

    async def wait_for_host_key(self, name: str) -> None:
        """Wait until the machine's host key is in known_hosts."""
        await self._pinned[name].wait()

    async def watch(self) -> None:
        """Watch until cancelled. Raises BrokenNodes if a machine ends or does not boot in time."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            await self.check_alive()
            waiting = [m for m in self._machines if not self._pinned[m.name].is_set()]
            await self._read_consoles(waiting)
            waiting = [m for m in waiting if not self._pinned[m.name].is_set()]
            if waiting and loop.time() - started > self._limit_s:
                why = self._errors.get(waiting[0].name, "")
                within = f"did not boot within {self._limit_s // 60} min"
                first = await self._gone(waiting[0], within + (f" ({why})" if why else ""))
                first.causes |= {machine.name: within for machine in waiting[1:]}
                raise first
            # EC2 allows an account about twenty such requests a second; this sends ten.
            await asyncio.sleep(max(1.0, len(waiting) / 10) if waiting else 5.0)

    async def _read_consoles(self, machines: Sequence[BootingMachine]) -> None:
        places = asyncio.Semaphore(8)

        async def read(machine: BootingMachine) -> None:
            async with places:
                key = read_host_key(await self._console(machine))
            if key is not None:
                self._known.pin(machine, key)
                self._pinned[machine.name].set()
                self._report(Progress("boot", machine.name, "done", machine.address))

        await asyncio.gather(*(read(machine) for machine in machines))

    async def _console(self, machine: BootingMachine) -> str:
        """Return the console's text; an empty one after an error that may pass.

        EC2 does not know a very new instance everywhere, and forgets an ended one. Raises
        CloudError for credentials and permissions.
        """
        self._errors.pop(machine.name, None)
        try:
            return await asyncio.to_thread(self._console_output, machine.instance_id)
        except CloudError as error:
            if error.code in UNIVERSAL - {"EndpointConnection"} | DENIED:
                raise
            self._errors[machine.name] = error.message
            return ""

    def _console_output(self, instance_id: str) -> str:
        """Return the latest text, or else what AWS posted after the boot.

        Only types with the Nitro hypervisor have the latest one: others, and bare metal, refuse
        (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html,
        2026-11-22).
        """
        if instance_id not in self._without_latest:
            try:
                with aws_errors():
                    answer = self._ec2.get_console_output(InstanceId=instance_id, Latest=True)
                return answer.get("Output", "")
            except CloudError as error:
                if error.code != "UnsupportedOperation":
                    raise
                self._without_latest.add(instance_id)
        with aws_errors():
            return self._ec2.get_console_output(InstanceId=instance_id).get("Output", "")

    async def check_alive(self) -> None:
        """Raise BrokenNodes with EC2's reason if a machine is neither pending nor running."""
        states = await asyncio.to_thread(self._states)
        for machine in self._machines:
            state, reason = states.get(machine.instance_id, ("pending", ""))
            if state not in ALIVE:
                raise await self._gone(machine, f"is {state}" + (f": {reason}" if reason else ""))

    def _states(self) -> dict[str, tuple[str, str]]:
        """Return each instance's state and the reason for it, by instance id."""
        states: dict[str, tuple[str, str]] = {}
        ids = [machine.instance_id for machine in self._machines]
        with aws_errors():
            # A filter takes at most 200 values, and the answer for those is a single page.
            pages = [
                self._ec2.describe_instances(
                    Filters=[{"Name": "instance-id", "Values": ids[i : i + 200]}]
                )
                for i in range(0, len(ids), 200)
            ]
        for page in pages:
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    reason = instance.get("StateReason", {}).get("Message", "")
                    states[instance["InstanceId"]] = (str(instance["State"]["Name"]), reason)
        return states

    async def _gone(self, machine: BootingMachine, what: str) -> BrokenNodes:
        try:
            console = (await self._console(machine)).strip().splitlines()[-10:]
        except CloudError:
            console = []
        last = "".join(f"\n    | {line.rstrip()}" for line in console)
        self._report(Progress("boot", machine.name, "failed", what))
        return BrokenNodes(
            f"{machine.name} ({machine.address}) {what}",
            f"the last lines of its console:{last}" if last else "its console is empty",
            {machine.name: what},
        )
