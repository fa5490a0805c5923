"""A cluster's stack: preview, up and destroy by Pulumi's Automation API."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pulumi import automation
from pulumi.automation import CommandError, ConcurrentUpdateError, StackNotFoundError

from config.cluster.resolved import Resolved
from config.errors import InfraError, Interrupted
from config.progress import Progress, Reporter, silent
from config.target import Target
from infra.fleet import Fleet
from infra.program.cluster_program import OUTPUT, first_step, load_classes, program
from infra.pulumi_engine.changes import Plan, is_cloud, plan_of
from infra.pulumi_engine.engine_events import Watch
from infra.pulumi_engine.failures import DamagedState, Failure, complaint, error
from infra.pulumi_engine.inline_program import inline_program
from infra.pulumi_engine.stack_lock import holders
from infra.pulumi_engine.workspace import (
    Operations,
    folder,
    remove_folders,
    remove_state,
    workspace,
)

if TYPE_CHECKING:
    from infra.pulumi_engine.installation import Engine

_PARALLEL = 64
"""Resources that the engine works on at once: instances mostly wait, and EC2 limits requests."""

_T = TypeVar("_T")

# The SDK's language server stumbles over an engine that ended first, and gRPC logs its traceback;
# what matters is the engine's own complaint.
logging.getLogger("grpc._server").setLevel(logging.CRITICAL)


class Stack:
    """What Pulumi knows of one cluster.

    Every method may raise InfraError with the engine's first real complaint.
    """

    def __init__(self, name: str, target: Target, engine: "Engine") -> None:
        self.name = name
        self._target = target
        self._engine = engine
        self._stack: Operations | None = None

    def preview(self, resolved: Resolved) -> Plan:
        """What `up` would change, drift included: what is really there is read first.

        The plan is kept, and the next `up` of the same `resolved` does that and nothing else.
        """
        with self.start_preview() as preview:
            return preview(resolved)

    @contextmanager
    def start_preview(self) -> Iterator[Callable[[Resolved], Plan]]:
        """Start a preview of a cluster that is not resolved yet; call the result with the cluster.

        The engine starts and reads what exists while the caller asks AWS about the rest. Without
        that call the engine is stopped, and nothing is planned.
        """
        watch, wanted = Watch("preview"), Future[Resolved]()
        operations = self._operations()
        kept = folder(self.name, self._target)
        for old in kept.glob("*.plan.json"):
            old.unlink()
        draft = kept / "draft.plan.json"

        def resources() -> None:
            program(wanted.result())()

        def cluster() -> Future[Resolved]:
            load_classes()
            return wanted

        def work() -> None:
            with inline_program(resources, after=cluster) as build:
                self._in_stack(
                    lambda: operations.preview(
                        program=build,
                        refresh=True,
                        plan=str(draft),
                        parallel=_PARALLEL,
                        on_event=watch,
                    )
                )

        def preview(resolved: Resolved) -> Plan:
            with self._errors(watch):
                wanted.set_result(resolved)
                try:
                    working.result()
                except KeyboardInterrupt:
                    self._end(working)
                    raise
                draft.rename(self._plan_file(resolved))
            return plan_of(watch.events)

        with ThreadPoolExecutor(1, thread_name_prefix="preview") as pool:
            working = pool.submit(work)
            try:
                yield preview
            finally:
                if not wanted.done():
                    wanted.set_exception(InfraError("nothing is to be planned", ""))
                self._end(working)

    def begin(self, resolved: Resolved, report: Reporter = silent) -> None:
        """Make the placement group of a cluster of which nothing exists, if it is to have one."""
        watch = Watch("resources", report)
        with self._errors(watch), inline_program(first_step(resolved)) as build:
            operations = self._operations()
            self._in_stack(lambda: operations.up(program=build, show_secrets=False, on_event=watch))

    def up(self, resolved: Resolved, report: Reporter = silent) -> Fleet:
        """The cluster is as `resolved` says; each resource was reported under `resources`.

        Raises Interrupted after Ctrl-C, when the engine has ended what was under way.
        """
        watch = Watch("resources", report)
        kept = self._plan_file(resolved)
        plan = str(kept) if kept.exists() else None
        with self._errors(watch), inline_program(program(resolved)) as build:
            operations = self._operations()
            try:
                self._in_stack(
                    lambda: operations.up(
                        program=build,
                        refresh=True,
                        plan=plan,
                        show_secrets=False,  # there are none, and to look costs 0.2 s
                        parallel=_PARALLEL,
                        on_event=watch,
                    )
                )
            finally:
                kept.unlink(missing_ok=True)  # a plan is carried out once
        return Fleet.model_validate(watch.outputs[OUTPUT])

    def destroy(self, report: Reporter = silent) -> None:
        """Nothing that Pulumi knows of the cluster exists; reported under `destroy`.

        An engine that still works for a client that died is stopped, and what it left open is
        forgotten. What the engine was just making when it was killed Pulumi does not know: that is
        found by its tags.
        """
        watch = Watch("destroy", report)
        with self._errors(watch):
            operations = self._operations()
            try:
                self._unlocked(lambda: _forget_pending(operations), report)
            except StackNotFoundError:
                return
            self._unlocked(
                # What can go goes, even if one resource refuses.
                lambda: operations.destroy(
                    run_program=False,
                    continue_on_error=True,
                    show_secrets=False,
                    parallel=_PARALLEL,
                    on_event=watch,
                ),
                report,
            )

    def fleet(self) -> Fleet | None:
        """What the last complete `up` made; None where there was none or it was destroyed."""
        with self._errors(Watch("fleet")):
            try:
                outputs = self._operations().workspace.stack_outputs(self.name)
            except StackNotFoundError:
                return None
        return Fleet.model_validate(outputs[OUTPUT].value) if OUTPUT in outputs else None

    def exists(self) -> bool:
        """Whether Pulumi knows of a resource of the cluster."""
        with self._errors(Watch("exists")):
            return bool(self._resources())

    def remove(self) -> None:
        """Remove all that Pulumi keeps of the cluster; its resources must be gone before."""
        try:
            with self._errors(Watch("remove")), suppress(StackNotFoundError):  # as wanted
                self._operations().workspace.remove_stack(self.name)
        except DamagedState:
            remove_state(self.name, self._target)
        self._stack = None
        remove_folders(self.name, self._target)

    def _operations(self) -> Operations:
        if self._stack is None:
            there = workspace(self.name, self._target, self._engine)
            self._stack = Operations(self.name, there)
        return self._stack

    def _resources(self) -> list[str]:
        """The types of the cloud's resources that the stack knows, one each."""
        try:
            state = self._operations().export_stack().deployment or {}
        except StackNotFoundError:
            return []
        kinds = [str(resource["type"]) for resource in state.get("resources") or []]
        return [kind for kind in kinds if is_cloud(kind)]

    def _plan_file(self, resolved: Resolved) -> Path:
        digest = hashlib.sha256(resolved.model_dump_json().encode()).hexdigest()[:16]
        return folder(self.name, self._target) / f"{digest}.plan.json"

    def _end(self, working: "Future[None]") -> None:
        """Wait until the engine in the other thread has ended; stop it if it still works."""
        while not working.done():
            self._operations().engine.interrupt()
            with suppress(KeyboardInterrupt):  # handed on: the engine is asked to end once more
                wait([working])
                self._stack = None  # its engine takes no more commands

    def _in_stack(self, operate: Callable[[], _T]) -> _T:
        """Run the operation; make the stack first if there is none.

        Settings that were left here say that there is one. They may be of another backend.
        """
        there = self._operations()
        if not there.has_settings():
            there.make()
        try:
            return self._unlocked(operate)
        except StackNotFoundError:
            there.make()
            return self._unlocked(operate)

    def _unlocked(self, operate: Callable[[], _T], report: Reporter | None = None) -> _T:
        """The operation's answer, a dead engine's lock removed where it stood in the way.

        With `report` an engine that lives is stopped first: whoever destroys needs nothing of it.
        """
        try:
            return operate()
        except ConcurrentUpdateError as locked:
            for holder in holders(str(locked)):
                alive = not holder.is_here or holder.is_alive
                if alive and (report is None or not holder.is_here):
                    raise InfraError(
                        f"{self.name} is being changed by {holder}",
                        "wait for it; if that machine is gone, remove the lock in Pulumi's backend",
                    ) from None
                if alive and report is not None:
                    report(Progress("destroy", f"engine {holder.pid}", "start", "stop"))
                    holder.stop()
                    report(Progress("destroy", f"engine {holder.pid}", "done", "stop"))
            self._operations().cancel()
            return operate()

    @contextmanager
    def _errors(self, watch: Watch) -> Iterator[None]:
        """What the engine complains of is an InfraError, and Ctrl-C is Interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            raise self._interrupted() from None
        except CommandError as failed:
            failure = watch.failure or Failure("", complaint(str(failed)))
            raise error(self.name, failure) from None
        except (OSError, RuntimeError) as failed:
            raise error(self.name, Failure("", f"Pulumi's engine failed: {failed}")) from None

    def _interrupted(self) -> Interrupted:
        try:
            left = self._resources()
        except CommandError:
            left = []
        if not left:
            return Interrupted(f"interrupted: nothing of {self.name} exists", "")
        instances = sum(kind == "aws:ec2/instance:Instance" for kind in left)
        return Interrupted(
            f"interrupted: {len(left)} resources of {self.name} exist, instances among them:"
            f" {instances}",
            f"run the same command again to go on, or `gpuctl down {self.name}` to remove them",
        )


def _forget_pending(stack: automation.Stack) -> None:
    """The engine does not wait for operations that a killed one left open."""
    exported = stack.export_stack()
    state = dict(exported.deployment or {})
    if state.pop("pending_operations", None):
        stack.import_stack(automation.Deployment(version=exported.version, deployment=state))
