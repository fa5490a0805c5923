"""A proposed cluster file, with its cost and the reasons; and the proposal as JSON."""

from typing import TYPE_CHECKING, Any

import yaml

from cli.terminal import shown
from config.catalogue.instance_types import PRICES_DATE
from config.quantities import money, price
from operations import proposal as operation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from operations.proposal import Proposal

_LISTED = 8
"""How many other types that fit the cluster file lists."""


_LEASE = """\
# The nodes power off by themselves after this time, also if nobody runs `gpuctl down`.
lifetime:
  max: 8h
# More keys: `gpuctl explain cluster`.
"""


def cluster_file(proposal: "Proposal", path: "Path") -> str:
    """Return the proposed cluster file: the reasons as comments, then its fields."""
    title = f"The cluster that {path} asks for, proposed by gpuctl up --for."
    return _cluster_file(proposal, title)


def first_cluster_file(proposal: "Proposal", path: "Path") -> str:
    """Return a first cluster file for the run file at `path`: as the proposed one, with a lease."""
    return _cluster_file(proposal, f"A cluster for {path}, by gpuctl init.") + _LEASE


def _cluster_file(proposal: "Proposal", title: str) -> str:
    fields = proposal.cluster.model_dump(mode="json", exclude_unset=True)
    comments = (title, cost(proposal), *_reasons(proposal))
    text = "".join(f"# {_one_line(comment)}\n" for comment in comments)
    return text + yaml.safe_dump(fields, sort_keys=False)


def proposal_json(proposal: "Proposal") -> dict[str, Any]:
    """Return the proposal as JSON: the cluster's fields, its cost, and what was compared."""
    nodes = proposal.offers[0].nodes_usd_h
    access = operation.catalogue_access_usd(proposal.cluster)
    return {
        "cluster": proposal.cluster.model_dump(mode="json", exclude_unset=True),
        "hourly_usd": None if nodes is None else nodes + access,
        "fit": [vars(offer) for offer in proposal.offers],
        "compared": proposal.compared,
        "excluded": dict(proposal.excluded),
        "warnings": list(proposal.warnings),
    }


def _one_line(text: str) -> str:
    """Return the text as a comment's: what a run file names must not become a field."""
    return shown(" ".join(text.split()), is_plain=True)


def _reasons(proposal: "Proposal") -> "Iterator[str]":
    chosen, *others = proposal.offers
    if not others:
        why = "is the only type that fits"
    elif chosen.nodes_usd_h is None:
        why = f"is the first of the {len(proposal.offers)} types that fit; no price is known"
    else:
        why = f"is the cheapest of the {len(proposal.offers)} types that fit"
    yield f"{chosen.instance_type} {why} ({proposal.compared} compared)."
    if proposal.excluded:
        parts = (
            f"{requirement} (excludes {count})" for requirement, count in proposal.excluded.items()
        )
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


def cost(proposal: "Proposal") -> str:
    """Return the line with what the proposed cluster costs an hour."""
    cluster, nodes = proposal.cluster, proposal.offers[0].nodes_usd_h
    source = f"gpuctl's list of {PRICES_DATE}, us-east-1"
    if nodes is None:
        return f"Cost: unknown, {cluster.instance_type} has no price in {source}."
    access = operation.catalogue_access_usd(cluster)
    parts = f"{cluster.nodes} x {cluster.instance_type} {price(nodes / cluster.nodes)}"
    terms = "the most that spot costs" if cluster.capacity.type == "spot" else "on-demand"
    total = money(nodes + access)
    return f"Cost: {total} per hour ({parts}, access to them {price(access)}; {terms}, {source})."
