"""Where instances become machines: the real ones, or none at all for tests of the API alone."""

import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Protocol

from config.errors import LabError
from lab.machines.machine import Machine, MachineSpec
from lab.network.bridge import Network
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
    """What an instance wants to hear of its machine; called from any thread, in any order."""

    def machine_running(self, instance_id: str) -> None:
        """The machine's process runs."""

    def machine_ended(self, instance_id: str, failure: str | None) -> None:
        """The machine is off: by our wish, by its own, or because of `failure`."""


class Machines(Protocol):
    """The world below the API. No method waits for a machine."""

    def launch(self, spec: MachineSpec, lifecycle: Lifecycle) -> None:
        """A machine boots; `lifecycle` hears when it runs and when it ended."""

    def start(self, instance_id: str, lifecycle: Lifecycle) -> None:
        """A machine that has ended boots again from its disk."""

    def power_off(self, instance_id: str) -> None:
        """The machine goes down; `lifecycle` hears when it is off."""

    def remove(self, instance_id: str) -> None:
        """Nothing of the machine, which has ended, is left."""

    def console(self, instance_id: str) -> str:
        """What the machine wrote to its console."""

    def has_booted(self, instance_id: str) -> bool:
        """Whether the machine has come so far that its services answer."""

    def add_public_ip(self, instance_id: str, address: str) -> None:
        """The machine answers to `address` too, as soon as it runs."""

    def remove_public_ip(self, instance_id: str, address: str) -> None:
        """The machine no longer answers to `address`."""

    def add_vpc(self, cidr: str) -> None:
        """The range exists; LabError when it cannot."""

    def remove_vpc(self, cidr: str) -> None:
        """The range is gone."""

    def add_subnet(self, cidr: str) -> None:
        """The subnet has a gateway; LabError when it cannot."""

    def remove_subnet(self, cidr: str) -> None:
        """The gateway is gone."""

    def add_file_system(self, file_system_id: str) -> None:
        """Machines can mount it."""

    def remove_file_system(self, file_system_id: str) -> None:
        """It is gone, and what is in it."""


class NoMachines:
    """Instances without machines: they run and end at once. For tests of the API alone."""

    def __init__(self) -> None:
        self._lifecycles: dict[str, Lifecycle] = {}

    def launch(self, spec: MachineSpec, lifecycle: Lifecycle) -> None:
        """The instance runs."""
        self._lifecycles[spec.instance_id] = lifecycle
        lifecycle.machine_running(spec.instance_id)

    def start(self, instance_id: str, lifecycle: Lifecycle) -> None:
        """The instance runs."""
        lifecycle.machine_running(instance_id)

    def power_off(self, instance_id: str) -> None:
        """The instance has ended; what a test calls to play a machine that powers itself off."""
        self._lifecycles[instance_id].machine_ended(instance_id, None)

    def remove(self, instance_id: str) -> None:
        """The instance is forgotten."""
        self._lifecycles.pop(instance_id, None)

    def console(self, instance_id: str) -> str:
        """Empty: nothing booted."""
        return ""

    def has_booted(self, instance_id: str) -> bool:
        """At once."""
        return True

    def add_public_ip(self, instance_id: str, address: str) -> None:
        """Nothing to do."""

    def remove_public_ip(self, instance_id: str, address: str) -> None:
        """Nothing to do."""

    def add_vpc(self, cidr: str) -> None:
        """Nothing to do."""

    def remove_vpc(self, cidr: str) -> None:
        """Nothing to do."""

    def add_subnet(self, cidr: str) -> None:
        """Nothing to do."""

    def remove_subnet(self, cidr: str) -> None:
        """Nothing to do."""

    def add_file_system(self, file_system_id: str) -> None:
        """Nothing to do."""

    def remove_file_system(self, file_system_id: str) -> None:
        """Nothing to do."""


class BootedMachines:
    """Every instance is a machine of `lab.machines.machine` in the lab's network.

    Boots, power-offs and removals run in a bounded pool, each after the machine's boot.
    """

    def __init__(self, network: Network) -> None:
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
        """Its folder is there, which every machine sees."""
        make_private(self._places.file_systems)
        (self._places.file_systems / file_system_id).mkdir(exist_ok=True)

    def remove_file_system(self, file_system_id: str) -> None:
        """Its folder is gone; what a machine still has mounted is empty."""
        # Room alone: `lab stop` removes what stays.
        shutil.rmtree(self._places.file_systems / file_system_id, ignore_errors=True)

    def launch(self, spec: MachineSpec, lifecycle: Lifecycle) -> None:
        """A machine boots; `lifecycle` hears when it runs and when it ended."""
        self._machines[spec.instance_id] = Machine(spec, self._places)
        self.start(spec.instance_id, lifecycle)

    def start(self, instance_id: str, lifecycle: Lifecycle) -> None:
        """A machine that has ended boots again from its disk."""
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
        """The machine goes down; its lifecycle hears when it is off."""
        self._after_boot(instance_id, lambda machine: machine.power_off(POWER_OFF_SECONDS))

    def remove(self, instance_id: str) -> None:
        """Nothing of the machine is left but the end of its console."""
        self._after_boot(instance_id, self._remove)

    def _remove(self, machine: Machine) -> None:
        self._last_words[machine.spec.instance_id] = machine.console()[-CONSOLE_KEPT:]
        machine.remove()
        self._boots.pop(machine.spec.instance_id, None)
        self._machines.pop(machine.spec.instance_id, None)

    def console(self, instance_id: str) -> str:
        """What the machine wrote to its console; its end stays after the machine is gone."""
        machine = self._machines.get(instance_id)
        return machine.console() if machine else self._last_words.get(instance_id, "")

    def has_booted(self, instance_id: str) -> bool:
        """Whether cloud-init told the machine's host keys."""
        return _BOOTED in self.console(instance_id)

    def add_public_ip(self, instance_id: str, address: str) -> None:
        """The machine answers to `address` too, as soon as its own network is up."""
        machine = self._machines.get(instance_id)
        if machine and not self._closing:
            # A thread of its own: it may wait for a boot, and boots must not wait for it.
            name = f"{instance_id} {address}"
            Thread(target=_add_public_ip, args=(machine, address), name=name, daemon=True).start()

    def remove_public_ip(self, instance_id: str, address: str) -> None:
        """The machine no longer answers to `address`."""
        self._after_boot(instance_id, lambda machine: machine.remove_public_ip(address))

    def close(self) -> None:
        """No machine is left: killed, not asked."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with ThreadPoolExecutor(BOOTS_AT_ONCE) as pool:
            # Once to end what a worker of ours waits for, once for what booted meanwhile.
            list(pool.map(_kill, tuple(self._machines.values())))
            self._pool.shutdown(wait=True)
            list(pool.map(_wipe, tuple(self._machines.values())))


def _add_public_ip(machine: Machine, address: str) -> None:
    """The address is added when cloud-init has ended: a network that comes up drops it."""
    deadline = time.monotonic() + BOOT_SECONDS
    while _BOOTED not in machine.console() and time.monotonic() < deadline:
        time.sleep(0.5)
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
