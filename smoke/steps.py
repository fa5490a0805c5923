"""The six steps: the cluster and the runs of each."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from config.errors import GpuctlError
from config.loading.load import load_cluster
from smoke.cheapest import cheapest
from smoke.ladder_record import StepPrice
from smoke.least_policy import least_policy, owner
from smoke.permissions import try_account
from smoke.rent import Remains, remove, use
from smoke.workplace import StepFailed, Workplace

_STACKS = Path("stacks")
_LAB_SIZE = "64K"
"""The only message size of nccl-tests in a lab, whose ranks share this machine's processors."""


@dataclass(frozen=True)
class Rent:
    """The cluster and the runs of a step; `minutes` is about how long AWS bills it.

    `is_least`: gpuctl has no other permissions than those that `gpuctl iam-policy` prints.
    """

    cluster: str
    runs: tuple[str, ...]
    minutes: int
    is_first: bool = False
    is_cheapest: bool = False
    is_least: bool = False
    is_healed: bool = False


@dataclass(frozen=True)
class LadderStep:
    """A step; without `rent` it costs nothing."""

    number: int
    title: str
    rent: Rent | None = None


STEPS = (
    LadderStep(1, "credentials, permissions, quotas"),
    LadderStep(2, "preview of what the later steps rent"),
    LadderStep(
        3,
        "two t3.small: up, up again, run, a killed client, down",
        Rent("smoke-2x-cpu.yaml", ("smoke-2x-cpu.run.yaml",), 10, is_first=True),
    ),
    LadderStep(
        4,
        "two of the cheapest type with EFA, spot: an MPI job over EFA, with the printed policy",
        Rent("smoke-2x-efa.yaml", ("smoke-2x-efa.run.yaml",), 30, is_cheapest=True, is_least=True),
    ),
    LadderStep(
        5,
        "two t3.small: up again, a node that is terminated by hand, heal",
        Rent("smoke-2x-cpu.yaml", ("smoke-2x-cpu.run.yaml",), 20, is_healed=True),
    ),
    LadderStep(
        6,
        "two p4d.24xlarge: nccl-tests and the public figures",
        Rent("smoke-2x-p4d.yaml", ("smoke-p4d-one.run.yaml", "smoke-p4d-both.run.yaml"), 40),
    ),
)


class StepActions:
    """The steps at a site. Cluster files and plans are made once, for several steps."""

    def __init__(self, site: Workplace) -> None:
        self.site = site
        self._files: dict[int, Path] = {}
        self._plans: dict[int, dict[str, Any]] = {}

    def price(self, step: LadderStep) -> StepPrice | None:
        """Return what the step costs, by AWS's prices; None for a step that rents nothing.

        Raises StepFailed if gpuctl refuses the plan.
        """
        if step.rent is None:
            return None
        plan = self._plan(step, step.rent)
        usd_h = plan["hourly_usd"]
        return StepPrice(
            usd_h=usd_h,
            about_usd=None if usd_h is None else usd_h * step.rent.minutes / 60,
            most_usd=plan["total_usd"],
            source=plan["price_source"],
        )

    def take(self, step: LadderStep) -> None:
        """Do the step; raise StepFailed if something is not as it should be."""
        actions: dict[int, Callable[[], None]] = {1: self._try_account, 2: self._preview}
        if step.rent is None:
            actions[step.number]()
            return
        rent, file = step.rent, self._file(step, step.rent)
        runs = [self.run_file(name) for name in rent.runs]
        if not rent.is_least:
            use(self.site, file, runs, is_first=rent.is_first, is_healed=rent.is_healed)
            return
        try:
            with least_policy(self.site, file):
                use(self.site, file, runs)
        except Remains as error:
            remove(self.site, load_cluster(file).name, *owner(self.site))
            raise StepFailed(
                f"with the printed policy `gpuctl down` left {', '.join(error.left)}, which your"
                " own permissions removed",
                "",
            ) from error

    def _try_account(self) -> None:
        files = []
        for step in STEPS:
            if step.rent is not None:
                with self._noting(step):
                    files.append(self._file(step, step.rent))
        try_account(self.site, [load_cluster(file) for file in files])

    def _preview(self) -> None:
        """Plan every cluster; a refused plan stops its own step alone."""
        for step in STEPS:
            if step.rent is None:
                continue
            with self._noting(step):
                plan = self._plan(step, step.rent)
                self.site.note(
                    f"step {step.number}: 2 x {plan['instance_type']} in {plan['zone']},"
                    f" {plan['counts']['create']} resources to create"
                )
                for warning in plan["warnings"]:
                    self.site.note(f"step {step.number}: warning: {warning}")

    @contextmanager
    def _noting(self, step: LadderStep) -> Iterator[None]:
        """Note an error as the reason for which the step cannot be taken, and go on."""
        try:
            yield
        except GpuctlError as error:
            self.site.note(f"step {step.number} is refused: {error}")

    def _plan(self, step: LadderStep, rent: Rent) -> dict[str, Any]:
        if step.number not in self._plans:
            file = str(self._file(step, rent))
            self._plans[step.number] = json.loads(
                self.site.read("plan", file, "--json", quiet=True)
            )
        return self._plans[step.number]

    def _file(self, step: LadderStep, rent: Rent) -> Path:
        """Return the cluster file, with the cheapest type if the step takes that."""
        if step.number not in self._files:
            path = _STACKS / rent.cluster
            self._files[step.number] = self._with_cheapest(path) if rent.is_cheapest else path
        return self._files[step.number]

    def _with_cheapest(self, path: Path) -> Path:
        """Return a copy of the cluster file with the instance type that is cheapest now."""
        choice = cheapest(self.site.target)
        self.site.note(
            f"the cheapest type with EFA and RDMA read is {choice.instance_type}:"
            f" ${choice.usd_h:.2f} per hour ({choice.source})"
        )
        document = yaml.safe_load(path.read_text())
        return self._written(path.name, document | {"instance_type": choice.instance_type})

    def run_file(self, name: str) -> Path:
        """Return the run file; in a lab with one small size, and without a proof of RDMA.

        The lab has no EFA: the stand-in of nccl-tests prints no line of NCCL, and its bandwidths
        say nothing.
        """
        document = yaml.safe_load((_STACKS / name).read_text())
        if self.site.lab is None or document["type"] != "nccl-tests":
            return _STACKS / name
        for field in ("min_bytes", "max_bytes"):
            document.pop(field, None)
        small = {"sizes": [_LAB_SIZE], "iterations": 2, "warmup": 1, "verify": "warn"}
        document |= small
        if isinstance(gates := document.get("expect"), dict):
            document["expect"] = {name: gate | {"at": _LAB_SIZE} for name, gate in gates.items()}
        return self._written(name, document)

    def _written(self, name: str, document: dict[str, Any]) -> Path:
        path = self.site.folder / name
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path
