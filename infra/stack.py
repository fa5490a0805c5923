"""A cluster's stack: preview, up and destroy by Pulumi's Automation API."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pulumi import automation
from pulumi.automation import CommandError, ConcurrentUpdateError, StackNotFoundError

from config.errors import InfraError, Interrupted
from config.progress import Progress, Reporter, silent
from config.resolved import Resolved
from config.target import Target
from infra.failures import Failure, error, one_line
from infra.fleet import Fleet
from infra.inline_program import inline
from infra.lock import holders
from infra.plan import Plan, is_cloud, plan_of
from infra.program import OUTPUT, first_step, program
from infra.watch import Watch
from infra.workspace import folder, workspace

if TYPE_CHECKING:
    from infra.engine import Engine

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
        self._stack: automation.Stack | None = None

    def preview(self, resolved: Resolved) -> Plan:
        """What `up` would change, drift included: what is really there is read first.

        The plan is kept, and the next `up` of the same `resolved` does that and nothing else.
        """
        watch = Watch("preview")
        with self._errors(watch), inline(program(resolved)) as build:
            stack = self._made()
            for old in folder(self.name, self._target).glob("*.plan.json"):
                old.unlink()
            self._unlocked(
                lambda: stack.preview(
                    program=build,
                    refresh=True,
                    plan=str(self._plan_file(resolved)),
                    parallel=_PARALLEL,
                    on_event=watch,
                )
            )
        return plan_of(watch.events)

    def begin(self, resolved: Resolved, report: Reporter = silent) -> None:
        """The cluster's placement group exists, if it is to have one; so does what was there.

        Only a cluster that does not exist yet has a beginning: any other stays as it is.
        """
        watch = Watch("resources", report)
        with self._errors(watch), inline(first_step(resolved)) as build:
            stack = self._made()
            if not _resources(stack):
                self._unlocked(lambda: stack.up(program=build, show_secrets=False, on_event=watch))

    def up(self, resolved: Resolved, report: Reporter = silent) -> Fleet:
        """The cluster is as `resolved` says; each resource was reported under `resources`.

        Raises Interrupted after Ctrl-C, when the engine has ended what was under way.
        """
        watch = Watch("resources", report)
        kept = self._plan_file(resolved)
        plan = str(kept) if kept.exists() else None
        with self._errors(watch), inline(program(resolved)) as build:
            stack = self._made()
            try:
                done = self._unlocked(
                    lambda: stack.up(
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
        return Fleet.model_validate(done.outputs[OUTPUT].value)

    def destroy(self, report: Reporter = silent) -> None:
        """Nothing that Pulumi knows of the cluster exists; reported under `destroy`.

        An engine that still works for a client that died is stopped, and what it left open is
        forgotten. What the engine was just making when it was killed Pulumi does not know: that is
        found by its tags.
        """
        watch = Watch("destroy", report)
        with self._errors(watch):
            stack = self._selected()
            if stack is None:
                return
            self._unlocked(lambda: _forget_pending(stack), report)
            self._unlocked(
                # What can go goes, even if one resource refuses.
                lambda: stack.destroy(
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
            stack = self._selected()
            output = stack.outputs().get(OUTPUT) if stack else None
        return None if output is None else Fleet.model_validate(output.value)

    def exists(self) -> bool:
        """Whether Pulumi knows of a resource of the cluster."""
        with self._errors(Watch("exists")):
            stack = self._selected()
            return stack is not None and bool(_resources(stack))

    def remove(self) -> None:
        """Pulumi knows the cluster no more; its resources must be gone before."""
        with self._errors(Watch("remove")):
            stack = self._selected()
            if stack is not None:
                stack.workspace.remove_stack(self.name)
                self._stack = None
        shutil.rmtree(folder(self.name, self._target), ignore_errors=True)

    def _made(self) -> automation.Stack:
        if self._stack is None:
            self._stack = automation.Stack.create_or_select(self.name, self._workspace())
        return self._stack

    def _selected(self) -> automation.Stack | None:
        if self._stack is None:
            try:
                self._stack = automation.Stack.select(self.name, self._workspace())
            except StackNotFoundError:
                return None
        return self._stack

    def _plan_file(self, resolved: Resolved) -> Path:
        digest = hashlib.sha256(resolved.model_dump_json().encode()).hexdigest()[:16]
        return folder(self.name, self._target) / f"{digest}.plan.json"

    def _workspace(self) -> automation.LocalWorkspace:
        return workspace(self.name, self._target, self._engine)

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
            self._made().cancel()
            return operate()

    @contextmanager
    def _errors(self, watch: Watch) -> Iterator[None]:
        """What the engine complains of is an InfraError, and Ctrl-C is Interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            raise self._interrupted() from None
        except CommandError as failed:
            failure = watch.failure or Failure("", _complaint(str(failed)))
            raise error(self.name, failure) from None
        except (OSError, RuntimeError) as failed:
            raise error(self.name, Failure("", f"Pulumi's engine failed: {failed}")) from None

    def _interrupted(self) -> Interrupted:
        try:
            stack = self._selected()
            left = _resources(stack) if stack else []
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


def _resources(stack: automation.Stack) -> list[str]:
    """The types of the cloud's resources that the stack knows, one each."""
    state = stack.export_stack().deployment or {}
    kinds = [str(resource["type"]) for resource in state.get("resources") or []]
    return [kind for kind in kinds if is_cloud(kind)]


def _forget_pending(stack: automation.Stack) -> None:
    """The engine does not wait for operations that a killed one left open."""
    exported = stack.export_stack()
    state = dict(exported.deployment or {})
    if state.pop("pending_operations", None):
        stack.import_stack(automation.Deployment(version=exported.version, deployment=state))


def _complaint(text: str) -> str:
    """The first line by which the engine says what is wrong."""
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if line.startswith("error: "):
            return one_line(line)
    return next((line for line in reversed(lines) if line), "Pulumi's engine failed")
