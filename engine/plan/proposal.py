"""The cluster that a run asks for, of the cheapest instance type of the catalogue that fits.

A type is compared as `run` compares a cluster: by the inventory that a cluster of the type would
have. So `run` accepts the cluster that is proposed. What AWS offers today is not known here:
`plan` and `up` ask.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from config.catalogue.instance_types import catalogue, is_instance_type
from config.cluster.cluster_file import REGION, Capacity, Cluster, Root, Storage
from config.errors import InputError
from config.identifiers import CLUSTER_NAME
from config.quantities import counted
from config.run.requirements import Requires, parse_range
from config.run.run_file import Run
from engine.plan.modes.job import node_range
from engine.plan.requirement_check import Misfit, misfits, missing_software, unchecked
from engine.plan.rules import wanted_gpus
from engine.plan.stand_in import stand_in
from nodes.inventory import Inventory

_LONGEST_NAME = 30
_LARGEST_ROOT_GIB = 65536
_NAMED = 3
"""How many types a message names."""


@dataclass(frozen=True)
class Offer:
    """An instance type that fits, and the on-demand price of all nodes; None if not known."""

    instance_type: str
    nodes_usd_h: float | None


@dataclass(frozen=True)
class Proposal:
    """A cluster for a run. `offers` are all types that fit, the cheapest and chosen one first.

    `compared` is the number of types that were compared, and `excluded` how many of them each
    requirement excludes. `warnings` are those that `run` would print too.
    """

    cluster: Cluster
    offers: tuple[Offer, ...]
    compared: int
    excluded: Mapping[str, int]
    warnings: tuple[str, ...]


def propose(run: Run, region: str | None = None) -> Proposal:
    """Return the cluster for a run, in the region if one is given.

    An elastic run gets its least number of nodes. Raises InputError if the run does not say which
    nodes it needs, or if no instance type fits.
    """
    needs = run.requires
    if needs is None or not needs.name_a_type:
        raise InputError(
            f"run {run.name} does not say which nodes it needs: it names no GPU and no instance"
            " type",
            "write `requires: {gpu: [H100], gpus: 8}` into the run file (`resources` in a file of"
            " dstack, SkyPilot or Kubernetes), or write a cluster file",
        )
    clusters = {name: _cluster(run, needs, name, region) for name in _candidates(needs)}
    misses_of = {name: _misfits(run, cluster) for name, cluster in clusters.items()}
    offers = [_offer(clusters[name]) for name, several in misses_of.items() if not several]
    misses = Counter(miss.required for several in misses_of.values() for miss in several)
    excluded = dict(misses.most_common())
    if not offers:
        raise InputError(*_nothing_fits(run, misses_of, excluded))
    offers.sort(key=lambda offer: math.inf if offer.nodes_usd_h is None else offer.nodes_usd_h)
    chosen = clusters[offers[0].instance_type]
    inventory = _stand_in(chosen, needs)
    warnings = (
        *unchecked(run, inventory),
        *missing_software(run, inventory, inventory.nodes, {}),
    )
    return Proposal(chosen, tuple(offers), len(clusters), excluded, warnings)


def _candidates(needs: Requires) -> tuple[str, ...]:
    """Return the types that the run names, else those of the catalogue that have GPUs."""
    if needs.instance_types:
        return tuple(name for name in needs.instance_types if is_instance_type(name))
    return tuple(name for name, entry in catalogue().items() if entry.gpu.count)


def _cluster(run: Run, needs: Requires, instance_type: str, region: str | None) -> Cluster:
    """Return the cluster file of this type, with only those fields set that it needs."""
    chosen, zones = _place(run, needs, region)
    fields: dict[str, object] = {
        "name": _name(run, needs),
        "nodes": node_range(run)[0],
        "instance_type": instance_type,
    }
    if chosen is not None:
        fields["region"] = chosen
    capacity: dict[str, object] = {"type": "spot"} if needs.spot else {}
    if zones:
        capacity["zones"] = zones
    if capacity:
        fields["capacity"] = Capacity.model_validate(capacity)
    gib = math.ceil(parse_range(needs.disk)[0]) if needs.disk else 0
    if Root().gib < gib <= _LARGEST_ROOT_GIB:
        fields["storage"] = Storage(root=Root(gib=gib))
    return Cluster.model_validate(fields)


def _name(run: Run, needs: Requires) -> str:
    """Return the first cluster that the run names, else the run's name, as a cluster's name."""
    named = (name for name in needs.clusters if re.fullmatch(CLUSTER_NAME, name))
    return next(named, run.name[:_LONGEST_NAME].rstrip("-"))


def _place(run: Run, needs: Requires, region: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the region, None for the user's own one, and the zones in it."""
    of_zones = {zone: _region(zone) for zone in needs.zones}
    regions = [
        name
        for name in needs.regions or dict.fromkeys(of_zones.values())
        if not of_zones or name in of_zones.values()
    ]
    if needs.regions and not regions:
        names = " or ".join(needs.regions)
        raise InputError(
            f"run {run.name} asks for {names}, and its zones are in other regions",
            "change one of the two in the run file",
        )
    if region and regions and region not in regions:
        raise InputError(
            f"run {run.name} asks for {' or '.join(regions)}, --region is {region}",
            "leave --region out, or change the run file",
        )
    chosen = region or next(iter(regions), None)
    return chosen, tuple(zone for zone, where in of_zones.items() if where == chosen)


def _region(zone: str) -> str:
    """Return the region of a zone: us-west-2 of us-west-2a and of us-west-2-lax-1a."""
    match = re.match(REGION.removesuffix("$"), zone)
    assert match is not None, zone  # the model has checked the zone's form
    return match[0]


def _misfits(run: Run, cluster: Cluster) -> tuple[Misfit, ...]:
    """Return what the run asks for and a cluster of this type does not have."""
    assert run.requires is not None
    inventory = _stand_in(cluster, run.requires)
    misses = list(misfits(run, inventory, inventory.nodes))
    key, least = wanted_gpus(run)
    gpus = inventory.nodes[0].gpus
    if 0 < gpus < least:
        misses.append(Misfit(f"{key} {least}", counted(gpus, "GPU")))
    return (*misses, *_unknown_price(run.requires, cluster))


def _unknown_price(needs: Requires, cluster: Cluster) -> Iterator[Misfit]:
    """Yield a misfit for a type that may cost more than the run allows, unless the run names it."""
    entry = catalogue().get(cluster.instance_type)
    if needs.max_price is None or needs.spot or needs.instance_types or entry is None:
        return
    if entry.price_usd_h is None:
        yield Misfit(f"nodes of at most ${needs.max_price:g}/h", "no known price")


def _stand_in(cluster: Cluster, needs: Requires) -> Inventory:
    """Return the inventory that the cluster would have, with one node for all, which are equal.

    A type that the catalogue does not have counts as one with the GPUs that are asked for.
    """
    return stand_in(cluster, nodes=1, gpus=int(parse_range(needs.gpus or "0")[0]))


def _offer(cluster: Cluster) -> Offer:
    entry = catalogue().get(cluster.instance_type)
    price = entry.price_usd_h if entry else None
    return Offer(cluster.instance_type, None if price is None else cluster.nodes * price)


def _nothing_fits(
    run: Run, misses_of: Mapping[str, tuple[Misfit, ...]], excluded: Mapping[str, int]
) -> tuple[str, str]:
    """Return message and hint: the requirement that excludes the last types."""
    left = dict(misses_of)
    for requirement in excluded:
        last = {
            name: miss.actual
            for name, misses in left.items()
            for miss in misses
            if miss.required == requirement
        }
        left = {name: misses for name, misses in left.items() if name not in last}
        if not left:
            types = [
                actual if actual.startswith(name) else f"{name} ({actual})"
                for name, actual in last.items()
            ]
            more = f" and {len(types) - _NAMED} more" if types[_NAMED:] else ""
            which = "all" if len(last) == len(misses_of) else "the last"
            message = f"no instance type fits run {run.name}: '{requirement}' excludes {which}"
            return f"{message}, {', '.join(types[:_NAMED])}{more}", "change it in the run file"
    return f"run {run.name} names no instance type of AWS", "name one, such as p5.48xlarge"
