"""The cluster that a run file asks for, before there is a file of the cluster."""

from pathlib import Path

from config.command_text import command_text
from config.loading.load import Warn, ignore, load_run, unchecked_requirements
from config.loading.overrides import NO_SUBSTITUTIONS, Overrides, Substitutions
from config.run.run_file import Run
from engine.plan import proposal as engine_proposal
from engine.plan.proposal import Proposal
from operations.chosen_target import ChosenTarget
from provision.billing.cost import catalogue_access_usd

__all__ = ["Proposal", "catalogue_access_usd"]


def propose(
    chosen: ChosenTarget,
    run_file: Path,
    *,
    substitutions: Substitutions = NO_SUBSTITUTIONS,
    warn: Warn = ignore,
) -> Proposal:
    """Return the cluster that the run file asks for; `warn` gets the file's warnings.

    Raises InputError if the file does not name a type of node, or if no type fits.
    """
    warnings: list[str] = []
    run = load_run(run_file, Overrides(manifest=substitutions), warnings.append)
    with_needs = with_requirements(run, run_file, substitutions)
    if with_needs is run:  # those of a manifest are about what `run` ignores
        for warning in warnings:
            warn(warning)
    return engine_proposal.propose(with_needs, chosen.region)


def no_cluster_hint(run: Run, run_file: Path) -> str:
    """Return the remedy for a run without a cluster; it names `--for` if the file knows enough."""
    # A pipe cannot be read again.
    is_file = run_file.is_file()
    with_needs = with_requirements(run, run_file) if is_file else run
    if with_needs.requires is not None and with_needs.requires.name_a_type:
        return f"{command_text('gpuctl up --for {}', run_file)} proposes one that fits"
    return "make one with `gpuctl up FILE`"


def with_requirements(
    run: Run, run_file: Path, substitutions: Substitutions = NO_SUBSTITUTIONS
) -> Run:
    """Return the run with what its manifest asks of nodes; the same run if it is no manifest."""
    needs = unchecked_requirements(run_file, substitutions) if run.requires is None else None
    return run if needs is None else run.model_copy(update={"requires": needs})
