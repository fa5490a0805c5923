"""The user's files on their way: consent, what travels, sending, outputs that come back."""

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import GpuctlError

if TYPE_CHECKING:
    from cli.output import Output
    from config.run.run_file import Run
    from engine.contract.plan import LaunchPlan
    from engine.plan.source_tree import Tree
    from engine.record.run_errors import KnownRun
    from nodes.inventory import Inventory

_LISTED = 40


def read_code(run: "Run", file: Path) -> "Tree | None":
    """Return the files of a run, hashed; None for a run that names none.

    Fetches the repository that the run names. Raises InputError for files that cannot travel.
    """
    if not (run.workdir or run.repo or run.files):
        return None
    from config.errors import InputError
    from config.run.code_rules import run_sources, size_mistake
    from engine.plan.named_scripts import with_scripts
    from engine.plan.source_tree import tree_of

    cloned = None
    if run.repo is not None:
        from engine.plan.repository import checkout

        cloned = checkout(run.repo)
    try:
        sources = run_sources(run, file.parent, cloned)
    except OSError as error:
        hint = "the files changed while they were read: run again"
        raise InputError(f"{error.filename} cannot be read: {error.strerror}", hint) from error
    # A repository, or files that grew meanwhile.
    if mistake := size_mistake(sources, run.code_limit):
        raise InputError(*mistake)
    return with_scripts(tree_of(sources), run)


def confirm_paths(run: "Run", file: Path, allowed: Collection[str], out: "Output") -> None:
    """Ask before files outside the run file's folder travel; InputError if refused."""
    from config.run.code_rules import outside_paths

    consented = {Path(text).expanduser().resolve() for text in allowed}
    for path in outside_paths(run, file.parent):
        if path not in consented:
            question = f"{run.name} sends {path}, which is not in the run file's folder. Send it?"
            out.confirm(question, option=f"--send {path}")


def code_lines(plan: "LaunchPlan", tree: "Tree | None") -> list[str]:
    """Return what would travel, as text; the first files, and what comes back."""
    from config.quantities import size
    from engine.plan.remote_paths import work_folder

    if plan.code is None:
        return []
    lines = [f"working folder {work_folder(plan.run_id)}"]
    if tree is not None:
        lines.append(f"code {tree.digest[:12]}: {plan.code.files} files, {size(plan.code.size)}")
        lines += [f"  {path}  {size(length)}" for path, _, _, _, length in tree.files[:_LISTED]]
        if len(tree.files) > _LISTED:
            lines.append(f"  … and {len(tree.files) - _LISTED} more (--json lists all)")
    if plan.code.outputs:
        lines.append(f"outputs {', '.join(plan.code.outputs)}")
    return lines


def code_document(tree: "Tree | None") -> list[dict[str, str | int]]:
    """Return what would travel, for JSON."""
    return [
        {"path": path, "kind": kind, "mode": f"{mode:o}", "size": size}
        for path, kind, mode, _, size in (tree.entries if tree else ())
    ]


def send_code(plan: "LaunchPlan", tree: "Tree | None", there: "Inventory", out: "Output") -> None:
    """Send the files to all nodes of the run; return when each has them."""
    if tree is None:
        return
    import asyncio

    from engine.session.code_transfer import send_tree

    with out.progress() as view:
        asyncio.run(send_tree(tree, plan, there, view.report))


def fetch(run: "KnownRun", there: "Inventory", runs: Path, out: "Output") -> Path | None:
    """Copy the run's outputs to this machine; return their folder, None if there are none.

    An error is only a warning: it must not keep the cluster. The nodes stay powered on meanwhile.
    """
    if not run.outputs:
        return None
    import asyncio

    from config.quantities import size
    from engine.record.journal_copy import outputs_folder
    from engine.session.head import prevent_power_off
    from engine.session.outputs import fetch_outputs

    folder = outputs_folder(runs, run.run_id)
    if folder.exists() and not any(folder.glob("*.part")):  # another client has fetched them
        return folder
    try:
        is_destroyed = run.on_stop == "destroy"
        lease = prevent_power_off(run.run_id, there) if is_destroyed else nullcontext()
        with lease, out.progress() as view:
            got = asyncio.run(fetch_outputs(run, there, folder, view.report))
    except (GpuctlError, OSError) as error:
        out.warn(f"outputs did not come back: {error}")
        return None
    except KeyboardInterrupt:
        out.warn("outputs did not come back: interrupted")
        return None
    for failure in got.failures:
        out.warn(f"outputs did not come back: {failure}")
    for message in got.refused:
        out.warn(f"outputs of {message}")
    if got.files:
        out.note(f"-- outputs: {got.files} files, {size(got.size)} in {folder}")
        return folder
    if not got.failures:
        out.warn(f"no file matches outputs {', '.join(run.outputs)}")
    return None
