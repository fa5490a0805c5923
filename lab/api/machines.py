"""The machines behind the API's instances: booted ones, or none for tests of the API alone."""

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Protocol

from config.errors import LabError
from config.polling import Timeouts, poll
from lab.machines.machine import Machine, MachineSpec
from lab.network.bridge import LabNetwork
from lab.places import make_private

log = logging.getLogger(__name__)

POWER_OFF_SECONDS = 20.0
"""How long a stopped or terminated instance may take to shut down before the plug is pulled."""

BOOTS_AT_ONCE = 8

BOOT_SECONDS = 60.0
"""How long an Elastic IP waits for a machine that boots."""

_BOOTED = "-----END SSH HOST KEY KEYS-----"  # cloud-init's last words on a console

CONSOLE_KEPT = 64 * 1024
"""Characters of a removed machine's console that GetConsoleOutput can still give."""


class Lifecycle(Protocol):
    """Callbacks of a machine to its instance; called from any thread, in any order."""

    def machine_running(self, instance_id: str) -> None:
        """Record that the machine's process runs."""

    def machine_ended(self, instance_id: str, failure: str | None) -> None:
        """Record that the machine is off: as requested, by itself, or because of `failure`."""


class NoMachines:
    """Instances without machines: they run and end at once. For tests of the API alone."""

    def __init__(self) -> None:
        self._lifecycles: dict[str, Lifecycle] = {}

    def launch(self, spec: MachineSpec, lifecycle: Lifecycle) -> None:
        """Record that the instance runs."""
        self._lifecycles[spec.instance_id] = lifecycle
        lifecycle.machine_running(spec.instance_id)

    def start(self, instance_id: str, lifecycle: Lifecycle) -> None:
        """Record that the instance runs."""
        lifecycle.machine_running(instance_id)

    def power_off(self, instance_id: str) -> None:
        """End the instance; a test calls this to act as a machine that powers itself off."""
        self._lifecycles[instance_id].machine_ended(instance_id, None)

    def remove(self, instance_id: str) -> None:
        """Forget the instance."""
        self._lifecycles.pop(instance_id, None)

    def console(self, instance_id: str) -> str:
        """Return nothing: no machine booted."""
        return ""

    def has_booted(self, instance_id: str) -> bool:
        """Return true at once."""
        return True

    def add_public_ip(self, instance_id: str, address: str) -> None:
        """Do nothing."""

    def remove_public_ip(self, instance_id: str, address: str) -> None:
        """Do nothing."""

    def add_vpc(self, cidr: str) -> None:
        """Do nothing."""

    def remove_vpc(self, cidr: str) -> None:
        """Do nothing."""

    def add_subnet(self, cidr: str) -> None:
        """Do nothing."""

    def remove_subnet(self, cidr: str) -> None:
        """Do nothing."""

    def add_file_system(self, file_system_id: str) -> None:
        """Do nothing."""

    def remove_file_system(self, file_system_id: str) -> None:
        """Do nothing."""


class BootedMachines:
    """Every instance is a machine of `lab.machines.machine` in the lab's network.

    Boots, power-offs and removals run in a bounded pool, each after the machine's boot.
    """

    def __init__(self, network: LabNetwork) -> None:
        self._places = network.places
        self._pool = ThreadPoolExecutor(BOOTS_AT_ONCE, thread_name_prefix="machine")
        self._machines: dict[str, Machine] = {}
        self._boots: dict[str, Future[None]] = {}
        self._last_words: dict[str, str] = {}
        self._closing = False
        self.add_vpc = network.add_vpc
        self.remove_vpc = network.remove_vpc
        self.add_subnet = network.add_subnet
        self.remove_subnet = network.remove_subnet

    def add_file_system(self, file_system_id: str) -> None:
        """Create the file system's folder, which every machine can mount."""
        make_private(self._places.file_systems)
        (self._places.file_systems / file_system_id).mkdir(exist_ok=True)

    def remove_file_system(self, file_system_id: str) -> None:
        """Remove the folder; a machine that still has it mounted sees it empty."""
        # Ignored errors only cost disk space: `lab stop` removes what is left.
        shutil.rmtree(self._places.file_systems / file_system_id, ignore_errors=True)

    def launch(self, spec: MachineSpec, lifecycle: Lifecycle) -> None:
        """Boot a machine; call `lifecycle` when it runs and when it has ended."""
        self._machines[spec.instance_id] = Machine(spec, self._places)
        self.start(spec.instance_id, lifecycle)

    def start(self, instance_id: str, lifecycle: Lifecycle) -> None:
        """Boot a machine that has ended again, from its disk."""
        machine = self._machines[instance_id]
        self._boots[instance_id] = self._pool.submit(self._boot, machine, lifecycle)

    def _boot(self, machine: Machine, lifecycle: Lifecycle) -> None:
        instance_id = machine.spec.instance_id
        if self._closing:
            return
        try:
            machine.boot(lambda ended: lifecycle.machine_ended(ended, None))
        except LabError as error:
            log.exception("%s did not boot", instance_id)
            lifecycle.machine_ended(instance_id, error.message)
        except Exception:
            log.exception("%s did not boot", instance_id)
            lifecycle.machine_ended(instance_id, "the machine could not be started")
        else:
            lifecycle.machine_running(instance_id)

    def _after_boot(self, instance_id: str, action: Callable[[Machine], None]) -> None:
        machine, boot = self._machines.get(instance_id), self._boots.get(instance_id)
        if machine is None or boot is None or self._closing:
            return

        def act() -> None:
            boot.result()
            try:
                action(machine)
            except Exception:
                log.exception("%s: an action failed", instance_id)

        # The pool starts boots before what waits for them (first in, first out): no deadlock.
        self._pool.submit(act)

    def power_off(self, instance_id: str) -> None:
        """Shut the machine down; call its lifecycle when it is off."""
        self._after_boot(instance_id, lambda machine: machine.power_off(POWER_OFF_SECONDS))

    def remove(self, instance_id: str) -> None:
        """Remove everything of the machine except the end of its console."""
        self._after_boot(instance_id, self._remove)

    def _remove(self, machine: Machine) -> None:
        self._last_words[machine.spec.instance_id] = machine.console()[-CONSOLE_KEPT:]
        machine.remove()
        self._boots.pop(machine.spec.instance_id, None)
        self._machines.pop(machine.spec.instance_id, None)

    def console(self, instance_id: str) -> str:
        """Return what the machine wrote to its console; of a removed machine only the end."""
        machine = self._machines.get(instance_id)
        return machine.console() if machine else self._last_words.get(instance_id, "")

    def has_booted(self, instance_id: str) -> bool:
        """Return whether cloud-init has printed the machine's host keys."""
        return _BOOTED in self.console(instance_id)

    def add_public_ip(self, instance_id: str, address: str) -> None:
        """Add a public address to the machine as soon as its network is up."""
        machine = self._machines.get(instance_id)
        if machine and not self._closing:
            # Not in the pool: it may wait for a boot, and boots must not wait for it.
            name = f"{instance_id} {address}"
            Thread(target=_add_public_ip, args=(machine, address), name=name, daemon=True).start()

    def remove_public_ip(self, instance_id: str, address: str) -> None:
        """Remove the public address from the machine."""
        self._after_boot(instance_id, lambda machine: machine.remove_public_ip(address))

    def close(self) -> None:
        """Kill and remove all machines, without shutting them down."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with ThreadPoolExecutor(BOOTS_AT_ONCE) as pool:
            # The first kill ends the machines that workers wait for; the removal also ends
            # those that booted meanwhile.
            list(pool.map(_kill, tuple(self._machines.values())))
            self._pool.shutdown(wait=True)
            list(pool.map(_wipe, tuple(self._machines.values())))


Machines = NoMachines | BootedMachines
"""Machines, as the API uses them. No method waits for one."""


def _add_public_ip(machine: Machine, address: str) -> None:
    """Add the address once cloud-init has ended: a network that comes up would drop it."""
    poll(lambda: _BOOTED in machine.console() or None, Timeouts(BOOT_SECONDS, 0.5))
    try:
        machine.add_public_ip(address)
    except LabError:
        log.exception("%s has no public address %s", machine.spec.instance_id, address)


def _kill(machine: Machine) -> None:
    try:
        machine.kill()
    except Exception:
        log.exception("%s could not be killed", machine.spec.instance_id)


def _wipe(machine: Machine) -> None:
    try:
        machine.remove()  # which kills what runs
    except Exception:
        log.exception("%s could not be removed", machine.spec.instance_id)
