"""A cluster's Pulumi stack: preview, up and destroy with Pulumi's Automation API."""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from pulumi import automation
from pulumi.automation import CommandError, ConcurrentUpdateError, StackNotFoundError

from config.cluster.resolved import Resolved
from config.command_text import command_text
from config.errors import InfraError, Interrupted
from config.progress import Progress, Reporter, silent
from config.target import Target
from infra.fleet import NO_CLAIMS, OUTPUT, Claims, Fleet, read_fleet
from infra.stack.changes import (
    INSTANCE,
    PLACEMENT_GROUP,
    Plan,
    Refreshed,
    is_cloud,
    is_within,
    name_of,
    plan_of,
    planned_operations,
    refreshed,
)
from infra.stack.engine_command import EngineCommand
from infra.stack.engine_events import (
    DamagedState,
    EventWatch,
    Failure,
    PlanViolated,
    complaint,
    error,
    local_error,
)
from infra.stack.inline_program import FirstStep, inline_program, load_program
from infra.stack.installation import Engine
from infra.stack.plugins import check_state, install_provider
from infra.stack.stack_lock import holders
from infra.stack.workspace import PROJECT, folder, remove_files, workspace_options

_PARALLEL = 64
"""The number of resources that the Pulumi engine works on at once. Most of them wait for their
instance, and EC2 limits the rate of requests."""

_PARALLEL_SPOT = 16
"""As many requests as EC2's limit lets through within `SPOT_ATTEMPTS` tries: RunInstances has 5 at
once and 2 more each second
(https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html, 2026-11-22)."""

_T = TypeVar("_T")

# If the Pulumi engine ends first, the SDK's language server fails and gRPC logs a traceback. The
# Pulumi engine's own error is the one that matters.
logging.getLogger("grpc._server").setLevel(logging.CRITICAL)


class Stack:
    """One cluster's stack.

    Every method may raise InfraError with the first failure of the Pulumi engine that has a cause.
    """

    def __init__(self, name: str, target: Target, engine: Engine) -> None:
        self.name = name
        self._target = target
        self._engine = engine
        self._command = EngineCommand(engine, target.credentials)
        self._automation_stack: automation.Stack | None = None
        self._is_checked = False
        self._is_prepared = False

    def preview(self, resolved: Resolved, replace: Collection[str] = ()) -> Plan:
        """Return what `up` would change, after reading the real state of all resources.

        The plan is kept, and the next `up` of the same `resolved` does exactly that. The machines
        of the nodes in `replace`, which exist, are made anew.
        """
        with self.start_preview(replace) as preview:
            return preview(resolved)

    @contextmanager
    def start_preview(self, replace: Collection[str] = ()) -> Iterator[Callable[[Resolved], Plan]]:
        """Start a preview of a cluster that is not resolved yet; yield a function that finishes it.

        The Pulumi engine reads what exists while the caller resolves the cluster and then passes it
        to that function. Without that call the Pulumi engine is stopped, and nothing is planned.
        """
        watch, cluster = EventWatch("preview"), Future[Resolved]()
        plans = folder(self.name, self._target)
        for old in plans.glob("*.plan.json"):
            old.unlink()
        draft = plans / "draft.plan.json"
        replaced = [self._urn(INSTANCE, name) for name in replace]

        def work() -> None:
            with inline_program(cluster) as program:
                self._unlocked(
                    lambda: self._created().preview(
                        program=program,
                        refresh=True,
                        plan=str(draft),
                        replace=replaced,
                        parallel=_PARALLEL,
                        on_event=watch,
                    )
                )

        def preview(resolved: Resolved) -> Plan:
            with self._errors(watch):
                cluster.set_result(resolved)
                try:
                    working.result()
                except KeyboardInterrupt:
                    self._end(working)
                    raise
                draft.rename(self._plan_file(resolved))
            return plan_of(watch.events)

        with ThreadPoolExecutor(2, thread_name_prefix="preview") as pool:
            pool.submit(load_program)
            working = pool.submit(work)
            try:
                yield preview
            finally:
                if not cluster.done():
                    cluster.set_exception(InfraError("the preview was given no cluster", ""))
                self._end(working)

    def drift(self, is_foreign: Callable[[str], bool] = lambda key: False) -> Refreshed | None:
        """Return how AWS differs from the stack's state, and change neither; None without a stack.

        A tag whose key `is_foreign` counts as no difference.

        It takes no lock: a command that changes the cluster meanwhile is not disturbed.
        """
        watch = EventWatch("drift")
        with self._errors(watch):
            try:
                self._checked().preview_refresh(parallel=_PARALLEL, on_event=watch)
            except StackNotFoundError:
                return None
        return refreshed(watch.events, is_foreign)

    def prepare(self, resolved: Resolved, only: FirstStep, report: Reporter = silent) -> None:
        """Create `only` the placement group, or all but the machines, which must not exist.

        Everything else that exists stays when the placement group is created.
        """
        watch = EventWatch("resources", report)
        with self._errors(watch):
            known = {str(resource["urn"]) for resource in self._resources()}
        group = self._urn(PLACEMENT_GROUP, "nodes")
        target = [group] if only == "group" and known else None
        fleet = self.fleet() if target else None
        with (
            self._errors(watch),
            inline_program(_known(resolved), only=only, fleet=fleet) as program,
        ):
            self._unlocked(
                lambda: self._created().up(
                    program=program,
                    # The engine refreshes no target that it does not know.
                    refresh=target is None or group in known,
                    target=target,
                    parallel=_PARALLEL,
                    on_event=watch,
                )
            )
        self._is_prepared = True

    def up(
        self,
        resolved: Resolved,
        report: Reporter = silent,
        claims: Claims = NO_CLAIMS,
        replace: Collection[str] = (),
    ) -> Fleet:
        """Create or change the cluster as in `resolved`; report each resource under `resources`.

        New nodes are launched into their `claims`, which no plan knows. The machines of the nodes
        in `replace` are made anew, by the newest launch template. Raises Interrupted after Ctrl-C,
        when the Pulumi engine has finished its current steps, and PlanViolated if something changed
        after the preview.
        """
        kept = self._plan_file(resolved)
        if not kept.exists():
            return self._update(resolved, report, claims, replace)
        try:
            return self._carry_out(kept, resolved, report, claims, replace)
        finally:
            kept.unlink(missing_ok=True)  # a plan is carried out once

    def _carry_out(
        self,
        kept: Path,
        resolved: Resolved,
        report: Reporter,
        claims: Claims,
        replace: Collection[str],
    ) -> Fleet:
        """Carry out the plan in the file `kept`, or a new one with the same operations."""
        approved = planned_operations(kept)
        changed = f"{self.name} has changed since the plan was made"
        violated = PlanViolated(changed, "run the command again to get a new plan")
        # What `prepare` has created violates the plan. The Pulumi engine plans a named resource
        # without its old inputs, and then compares with them: `userData`, which the provider has
        # read, would violate the plan when other resources are already replaced (checkGoal in
        # step_generator.go, 3.258.0, 2026-11-26).
        if not replace and not self._is_prepared:
            try:
                return self._update(resolved, report, claims, plan=str(kept))
            except PlanViolated as error:
                # It also compares values that the provider computes anew each time
                # (https://github.com/pulumi/pulumi/issues/13765 and 11587, 2026-11-22).
                violated = error
        # The person has approved operations, so these are what must be the same.
        self.preview(resolved, replace)
        if not is_within(planned_operations(kept), approved):
            raise violated
        detail = "a new plan has the same operations"
        report(Progress("resources", self.name, "running", detail))
        return self._update(resolved, report, claims, replace)

    def _update(
        self,
        resolved: Resolved,
        report: Reporter,
        claims: Claims,
        replace: Collection[str] = (),
        plan: str | None = None,
    ) -> Fleet:
        """Carry out `plan`, or what is to do now; return the fleet."""
        watch = EventWatch("resources", report)
        is_spot = resolved.cluster.capacity.type == "spot"
        replaced = [self._urn(INSTANCE, name) for name in replace]
        with self._errors(watch), inline_program(_known(resolved), claims) as program:
            done = self._unlocked(
                lambda: self._created().up(
                    program=program,
                    refresh=True,
                    plan=plan,
                    replace=replaced,
                    parallel=_PARALLEL_SPOT if is_spot else _PARALLEL,
                    on_event=watch,
                )
            )
        return Fleet.model_validate(done.outputs[OUTPUT].value)

    def destroy(self, report: Reporter = silent) -> None:
        """Remove all resources of the cluster that Pulumi knows; report each under `destroy`.

        A Pulumi engine that still works for a dead client is stopped. Resources that a killed
        engine was creating are not in the state; gpuctl finds them by their tags.
        """
        watch = EventWatch("destroy", report)
        with self._errors(watch), suppress(StackNotFoundError):  # nothing is to be removed
            self._unlocked(
                # If one resource cannot be removed, all others are removed.
                lambda: self._checked().destroy(
                    run_program=False, continue_on_error=True, parallel=_PARALLEL, on_event=watch
                ),
                report,
            )

    def fleet(self) -> Fleet | None:
        """Return the fleet of the last complete `up`; None without one, or after `destroy`."""
        with self._errors():
            try:
                outputs = self._selected().outputs()
            except StackNotFoundError:
                return None
        return read_fleet(outputs[OUTPUT].value, self.name) if OUTPUT in outputs else None

    def exists(self) -> bool:
        """Return whether Pulumi knows a resource of the cluster."""
        with self._errors():
            return bool(self._resources())

    def names(self) -> dict[tuple[str, str], str]:
        """Return the names of the cluster's resources that exist, by Pulumi's type and AWS's id."""
        with self._errors():
            return {
                (str(resource["type"]), str(resource["id"])): name_of(str(resource["urn"]))
                for resource in self._resources()
                if resource.get("id")
            }

    def nodes(self) -> dict[str, str]:
        """Return the id of each node's instance that Pulumi knows, by the node's name."""
        names = self.names().items()
        return {name: i for (kind, i), name in names if kind == INSTANCE and name != "bastion"}

    def _urn(self, kind: str, name: str) -> str:
        """Return Pulumi's name of a resource."""
        return f"urn:pulumi:{self.name}::{PROJECT}::{kind}::{name}"

    def remove(self) -> None:
        """Remove all that Pulumi keeps of the cluster; its resources must be gone before."""
        # What Pulumi cannot read is removed too.
        with (
            suppress(DamagedState),
            self._errors(),
            suppress(StackNotFoundError),
        ):
            workspace = self._selected().workspace  # it starts no provider
            # The SDK's remove_stack keeps the stack's earlier states.
            arguments = ["stack", "rm", "--yes", "--remove-backups", "--stack", self.name]
            environment = {"PULUMI_HOME": workspace.pulumi_home or "", **workspace.env_vars}
            self._command.run(arguments, workspace.work_dir, environment)
        self._automation_stack = None
        remove_files(self.name, self._target)

    def _options(self) -> automation.LocalWorkspaceOptions:
        return workspace_options(self.name, self._target, self._command)

    def _selected(self) -> automation.Stack:
        """Return the stack of the Automation API; raise StackNotFoundError if none exists."""
        if self._automation_stack is None:
            self._automation_stack = automation.select_stack(
                self.name, project_name=PROJECT, program=_no_program, opts=self._options()
            )
        return self._automation_stack

    def _state(self) -> Mapping[str, Any]:
        """Return Pulumi's state of the stack, which names no provider but gpuctl's."""
        state = self._selected().export_stack()
        check_state(self.name, state)
        self._is_checked = True
        return state.deployment or {}

    def _checked(self) -> automation.Stack:
        """Return the stack, whose state names no provider but gpuctl's, which is installed."""
        stack = self._selected()
        if not self._is_checked:
            self._state()
        install_provider(stack.workspace, self._target)
        return stack

    def _created(self) -> automation.Stack:
        """Return the stack like `_checked`; create it if none exists."""
        try:
            return self._checked()
        except StackNotFoundError:
            self._automation_stack = automation.create_stack(
                self.name, project_name=PROJECT, program=_no_program, opts=self._options()
            )
            self._is_checked = True
            return self._checked()

    def _resources(self) -> list[Mapping[str, Any]]:
        """Return each resource in the cloud that the stack knows, as it is in Pulumi's state."""
        try:
            resources = self._state().get("resources") or []
        except StackNotFoundError:
            return []
        return [resource for resource in resources if is_cloud(str(resource["type"]))]

    def _plan_file(self, resolved: Resolved) -> Path:
        # Others may tag a resource between the plan and `up`, which then leaves the tag alone.
        text = resolved.model_dump_json(exclude={"foreign_tags"})
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return folder(self.name, self._target) / f"{digest}.plan.json"

    def _unlocked(self, operate: Callable[[], _T], report: Reporter | None = None) -> _T:
        """Run the operation; if a dead process holds the stack's lock, remove it and retry.

        With `report`, a Pulumi engine on this machine that is alive is stopped, because `destroy`
        does not need its result. Without it, or on another machine, InfraError is raised.
        """
        try:
            return operate()
        except ConcurrentUpdateError as locked:
            for holder in holders(str(locked)):
                alive = not holder.is_here or holder.is_alive
                if alive and (report is None or not holder.is_here):
                    raise InfraError(
                        f"{self.name} is being changed by {holder}",
                        f"wait for it; if that machine is gone, {self._lock_remedy}",
                    ) from None
                if alive and report is not None:
                    report(Progress("destroy", f"engine {holder.pid}", "start", "stop"))
                    holder.stop()
                    report(Progress("destroy", f"engine {holder.pid}", "done", "stop"))
            self._selected().cancel()
            return operate()

    @property
    def _lock_remedy(self) -> str:
        bucket = self._target.bucket
        if bucket is None:
            return "remove the lock in Pulumi's backend"
        locks = f"{bucket.url}/.pulumi/locks/organization/{PROJECT}/{self.name}/"
        return f"remove its lock: {command_text('aws s3 rm --recursive {}', locks)}"

    @contextmanager
    def _errors(self, watch: EventWatch | None = None) -> Iterator[None]:
        """Convert the Pulumi engine's errors to InfraError, and Ctrl-C to Interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            raise self._interrupted() from None
        except CommandError as failed:
            failure = watch.failure if watch else None
            raise error(self.name, failure or Failure("", complaint(str(failed)))) from None
        except (OSError, RuntimeError, JSONDecodeError) as failed:
            raise local_error(self.name, failed, self._engine.path) from None

    def _end(self, working: "Future[None]") -> None:
        """Stop the Pulumi engine in the other thread if it still works, and wait for its end."""
        if working.done():
            return
        while not working.done():
            self._command.interrupt()
            with suppress(KeyboardInterrupt):  # the next round interrupts the Pulumi engine again
                wait([working])
        self._command, self._automation_stack = (
            EngineCommand(self._engine, self._target.credentials),
            None,
        )

    def _interrupted(self) -> Interrupted:
        try:
            left = self._resources()
        except (CommandError, DamagedState):
            left = []
        if not left:
            return Interrupted(f"interrupted: nothing of {self.name} exists", "")
        instances = sum(resource["type"] == INSTANCE for resource in left)
        return Interrupted(
            f"interrupted: {len(left)} resources of {self.name} exist, {instances} of them"
            " instances",
            "run the same command again to continue, or"
            f" {command_text('gpuctl down {}', self.name)} to remove them",
        )


def _no_program() -> None:
    """Do nothing: the Automation API requires a program also where none runs."""


def _known(resolved: Resolved) -> "Future[Resolved]":
    """Return a future that has the cluster."""
    future = Future[Resolved]()
    future.set_result(resolved)
    return future
