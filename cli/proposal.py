"""`gpuctl up --for FILE`: the cluster file that a run needs, with its cost and the reasons."""

from typing import TYPE_CHECKING, Any

from cli.terminal import shown
from config.quantities import money, price

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.output import Output
    from config.loading.substitutions import Substitutions
    from config.run.run_file import Run
    from engine.plan.proposal import Proposal

_LISTED = 8
"""How many other types that fit the cluster file lists."""


def proposal_for(
    path: "Path", given: "Substitutions", region: str | None, out: "Output"
) -> "Proposal":
    """Return the cluster that the run file asks for; report the file's warnings.

    Raises InputError if the file does not name a type of node, or if no type fits.
    """
    from config.loading.load import load_run
    from config.loading.overrides import Overrides
    from engine.plan.proposal import propose

    warnings: list[str] = []
    run = load_run(path, Overrides(manifest=given), warnings.append)
    wanted = _with_requirements(run, path, given)
    if wanted is run:  # those of a manifest are about what `run` ignores
        for warning in warnings:
            out.complain(warning)
    return propose(wanted, region)


def no_cluster_hint(run: "Run", path: "Path") -> str:
    """Return the remedy for a run without a cluster; it names `--for` if the file knows enough."""
    from config.command_text import command_text
    from config.loading.substitutions import NO_SUBSTITUTIONS

    # A pipe cannot be read again.
    wanted = _with_requirements(run, path, NO_SUBSTITUTIONS) if path.is_file() else run
    if wanted.requires is not None and wanted.requires.name_a_type:
        return f"{command_text('gpuctl up --for {}', path)} proposes one that fits"
    return "make one with `gpuctl up FILE`"


def _with_requirements(run: "Run", path: "Path", given: "Substitutions") -> "Run":
    """Return the run with what its manifest asks of nodes; the same run if it is no manifest."""
    from config.loading.load import unchecked_requirements

    needs = unchecked_requirements(path, given) if run.requires is None else None
    return run if needs is None else run.model_copy(update={"requires": needs})


def show(proposal: "Proposal", path: "Path", out: "Output") -> None:
    """Print the proposed cluster file on stdout."""
    out.show(_document(proposal), [cluster_file(proposal, path).rstrip("\n")])


def write(proposal: "Proposal", path: "Path", file: "Path", out: "Output") -> None:
    """Write the proposed cluster file and print it; InputError if there is such a file."""
    from config.command_text import command_text
    from config.errors import InputError

    text = cluster_file(proposal, path)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        hint = (
            f"name a new file, or bring up what it describes: {command_text('gpuctl up {}', file)}"
        )
        raise InputError(f"{file} exists, and --for writes a new cluster file", hint) from None
    except OSError as error:
        reason = f"{file} cannot be written: {error.strerror}"
        raise InputError(reason, "name a file in a folder of yours") from error
    out.note(text.rstrip("\n"))
    out.note(f"-- written to {file}")


def cluster_file(proposal: "Proposal", path: "Path") -> str:
    """Return the proposed cluster file: the reasons as comments, then its fields."""
    import yaml

    fields = proposal.cluster.model_dump(mode="json", exclude_unset=True)
    comments = "".join(f"# {_one_line(text)}\n" for text in _comments(proposal, path))
    return comments + yaml.safe_dump(fields, sort_keys=False)


def _one_line(text: str) -> str:
    """Return the text as a comment's: what a run file names must not become a field."""
    return shown(" ".join(text.split()), is_plain=True)


def _comments(proposal: "Proposal", path: "Path") -> "Iterator[str]":
    yield f"The cluster that {path} asks for, proposed by `gpuctl up --for`."
    yield _cost(proposal)
    chosen, *others = proposal.offers
    if not others:
        why = "is the only type that fits"
    elif chosen.nodes_usd_h is None:
        why = f"is the first of the {len(proposal.offers)} types that fit; no price is known"
    else:
        why = f"is the cheapest of the {len(proposal.offers)} types that fit"
    yield f"{chosen.instance_type} {why} ({proposal.compared} compared)."
    if proposal.excluded:
        parts = (f"{wanted} (excludes {count})" for wanted, count in proposal.excluded.items())
        yield f"The file asks for {', '.join(parts)}."
    if others:
        listed = [
            f"{candidate.instance_type} {money(candidate.nodes_usd_h)}"
            for candidate in others[:_LISTED]
        ]
        more = f" and {len(others) - _LISTED} more" if others[_LISTED:] else ""
        yield f"Also fit, with the cost of all nodes per hour: {', '.join(listed)}{more}."
    for warning in proposal.warnings:
        yield f"Warning: {warning}."


def _cost(proposal: "Proposal") -> str:
    from config.catalogue.instance_types import PRICES_DATE
    from provision.costs.cost import catalogue_access_usd

    cluster, nodes = proposal.cluster, proposal.offers[0].nodes_usd_h
    source = f"gpuctl's list of {PRICES_DATE}, us-east-1"
    if nodes is None:
        return f"Cost: unknown, {cluster.instance_type} has no price in {source}."
    access = catalogue_access_usd(cluster)
    parts = f"{cluster.nodes} x {cluster.instance_type} {price(nodes / cluster.nodes)}"
    terms = "the most that spot costs" if cluster.capacity.type == "spot" else "on-demand"
    total = money(nodes + access)
    return f"Cost: {total} per hour ({parts}, access to them {price(access)}; {terms}, {source})."


def _document(proposal: "Proposal") -> dict[str, Any]:
    from provision.costs.cost import catalogue_access_usd

    nodes = proposal.offers[0].nodes_usd_h
    access = catalogue_access_usd(proposal.cluster)
    return {
        "cluster": proposal.cluster.model_dump(mode="json", exclude_unset=True),
        "hourly_usd": None if nodes is None else nodes + access,
        "fit": [vars(offer) for offer in proposal.offers],
        "compared": proposal.compared,
        "excluded": dict(proposal.excluded),
        "warnings": list(proposal.warnings),
    }
