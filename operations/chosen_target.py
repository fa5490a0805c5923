"""The target of a command: AWS, or a lab of this machine."""

import itertools
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from config.bucket import bucket_of
from config.errors import InputError
from config.folders import state_home
from config.progress import Reporter
from config.settings import settings
from config.target import Target
from lab import lifecycle
from lab.places import DEFAULT as DEFAULT_LAB
from lab.places import Places

if TYPE_CHECKING:
    from provision.state.store import ClusterStore

__all__ = ["DEFAULT_LAB", "Places"]


@dataclass(frozen=True)
class ChosenTarget:
    """The target that a command's options and the user's settings choose. `lab` is None for AWS.

    `region` is the option's; `default_region` counts where the cluster file has none. `gc_regions`
    are the regions that `gc` searches without the option, empty for all.
    """

    lab: Places | None = None
    region: str | None = None
    profile: str | None = None
    backend: str | None = None
    default_region: str | None = None
    owner: str = ""
    check_permissions: bool = True
    gc_regions: tuple[str, ...] = ()

    @property
    def state(self) -> Path:
        """Return the folder with gpuctl's records of this target, also of a lab that is down."""
        return self.lab.state if self.lab else state_home() / "aws"

    @property
    def runs(self) -> Path:
        """Return the folder with the history of runs, on whatever clusters they were."""
        return self.state / "runs"

    @property
    def command(self) -> str:
        """Return `gpuctl` with the options that choose this target, for a shell."""
        lab = self.lab.options if self.lab else ()
        return command(lab, region=self.region, profile=self.profile, backend=self.backend)

    @property
    def chosen_lab(self) -> Places:
        """Return the lab that `gpuctl lab` acts on: the named one, else the default one."""
        return self.lab or Places(DEFAULT_LAB)

    def target(self, region: str | None = None) -> Target:
        """Return the target; InputError when no region is known, LabError for a lab that is down.

        `region` is that of the cluster file. The option overrides it; it overrides the environment.
        """
        target = self._target(region)
        return replace(
            target,
            session_proxy=self._session_proxy(target.region),
            owner=self.owner,
            check_permissions=self.check_permissions,
        )

    def _session_proxy(self, region: str) -> tuple[str, ...]:
        """Return the command with which ssh calls this gpuctl for a connection in the region."""
        door = Path(__file__).parent.parent / "gpuctl" / "__main__.py"
        profile = ("--profile", self.profile) if self.profile else ()
        lab = self.lab.options if self.lab else ()
        return (sys.executable, str(door), *lab, "--region", region, *profile, "ssm-proxy")

    def _target(self, region: str | None) -> Target:
        if self.lab:
            chosen = self.region or region or self.default_region
            return lifecycle.target(self.lab, chosen or "us-east-1", self.backend)
        chosen = self.aws_region(region)
        if chosen is None:
            raise InputError(
                "no AWS region is known",
                "set `region:` in the cluster file, --region, or AWS_REGION",
            )
        environment = {"AWS_PROFILE": self.profile} if self.profile else {}
        return Target("aws", chosen, self.state, environment=environment, backend=self.backend)

    def aws_region(self, region: str | None = None) -> str | None:
        """Return the region of AWS: the option's, the file's, the settings'; None if none says."""
        chosen = self.region or region or self.default_region
        if chosen is None:
            # boto3, which few commands need here.
            from provision.aws.account import profile_region  # noqa: PLC0415

            chosen = profile_region(self.profile)
        return chosen

    def ensure_lab(self, report: Reporter) -> None:
        """Start the lab if it is down; do nothing on AWS."""
        if self.lab:
            lifecycle.start(self.lab, report)

    def ensure_image(self, ami: str, region: str, report: Reporter) -> None:
        """Make the AMI's image in the lab if there is none; do nothing on AWS."""
        if self.lab:
            lifecycle.ensure_image(ami, region, report)

    def is_lab_down(self) -> bool:
        """Return whether the target is a lab that does not run, so that nothing exists there."""
        if not self.lab:
            return False
        return not lifecycle.status(self.lab).up

    def remembered(self) -> Target:
        """Return a target to read records: those of the team, or without a bucket this machine's.

        Without a bucket, and while the lab is down, it calls no API.
        """
        if bucket_of(self.backend) is not None and not self.is_lab_down():
            return self.target(self.default_region or "us-east-1")
        return Target("lab" if self.lab else "aws", self.region or "us-east-1", self.state)

    def cluster_names(self) -> list[str]:
        """Return the names of all clusters of which there is a record, also those of hosts."""
        # pydantic: completion does without.
        from provision.state.store import ClusterStore  # noqa: PLC0415

        rented = [record.name for record in ClusterStore(self.remembered()).records()]
        return sorted([*rented, *self.hosts_store().hosts_names()])

    def cluster_target(self, name: str, *, instead: str) -> Target:
        """Return the target of a rented cluster, in the region of its record if there is one.

        InputError when the target is a lab that is down, and for a cluster of hosts: `instead` says
        what to do there.
        """
        store = self.cluster_store(name)
        if store.hosts_record(name) is not None:
            raise InputError(
                f"cluster {name} is of machines that you have, which gpuctl does not rent", instead
            )
        return store.target

    def cluster_store(self, name: str) -> "ClusterStore":
        """Return the records of clusters, at the target of this one, rented or of hosts."""
        # pydantic: completion does without.
        from provision.state.store import ClusterStore  # noqa: PLC0415

        hosts = self.hosts_store()
        if hosts.hosts_record(name) is not None:
            return hosts
        self.require_lab()
        store = ClusterStore(self.remembered())
        record = store.last_known(name)
        if record is None and not self.lab and self.aws_region() is None:
            names = ", ".join(self.cluster_names())
            raise InputError(
                f"this machine knows no cluster '{name}', and no AWS region to look for it",
                f"{f'it knows {names}; ' if names else ''}set --region, or AWS_REGION",
            )
        return store.at(self.target(record.region if record else None))

    def known_store(self, name: str) -> "ClusterStore":
        """Return the records at the target of a cluster that has one; InputError without one."""
        # pydantic: completion does without.
        from provision.state.record import unknown_cluster  # noqa: PLC0415

        if not self.is_known(name):
            raise unknown_cluster(name, self.cluster_names())
        return self.cluster_store(name)

    def is_known(self, name: str) -> bool:
        """Return whether there is a record of the cluster."""
        # pydantic: completion does without.
        from provision.state.store import ClusterStore  # noqa: PLC0415

        if self.hosts_store().hosts_record(name) is not None:
            return True
        return ClusterStore(self.remembered()).record(name) is not None

    def hosts_store(self) -> "ClusterStore":
        """Return the records of clusters of hosts: they are this machine's alone."""
        # pydantic: completion does without.
        from provision.state.store import ClusterStore  # noqa: PLC0415

        return ClusterStore(Target("hosts", "", self.state / "hosts"))

    def require_lab(self) -> None:
        """Raise InputError when the target is a lab that is down: no cluster exists in it."""
        if self.lab and self.is_lab_down():
            raise InputError(
                "the lab is not running, so no cluster exists in it",
                f"start one with `{command(self.lab.options)} up FILE`",
            )


def command(lab: Sequence[str], **options: str | None) -> str:
    """Return `gpuctl` with the options of a lab and those that are not None, for a shell."""
    given = [(f"--{name}", value) for name, value in options.items() if value is not None]
    return shlex.join(["gpuctl", *lab, *itertools.chain.from_iterable(given)])


def choose(
    lab: Places | None = None,
    region: str | None = None,
    profile: str | None = None,
    backend: str | None = None,
) -> ChosenTarget:
    """Return the target of these options; the user's settings decide what is None."""
    given = {"region": region, "aws_profile": profile, "backend": backend}
    chosen = {name: setting.value for name, setting in settings(given).items()}
    return ChosenTarget(
        lab,
        region,
        chosen["aws_profile"],
        chosen["backend"],
        chosen["region"],
        chosen["owner"] or "",
        chosen["check_permissions"],
        chosen["gc_regions"] or (),
    )
