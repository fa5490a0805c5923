"""GPUs that are idle while their run goes on, and what they cost meanwhile."""

from collections.abc import Iterable

from config.models import Value


class IdleCost(Value):
    """Idle GPUs of a node: `seconds` is the longest time, `cost_usd` that of all of them.

    The cost is the GPUs' part of the node's on-demand price; None if that is not known.
    """

    node: str
    gpus: tuple[int, ...]
    seconds: float
    cost_usd: float | None


def idle_cost(
    node: str, idle: Iterable[tuple[int, float]], of: int, price_usd_h: float | None
) -> IdleCost | None:
    """Return what a node's idle GPUs cost; None if none is idle.

    `idle` has a time for each GPU, in seconds, 0 for one that works. The node has `of` GPUs, and
    its price is in US dollars per hour, None if it is not known.
    """
    seconds_of = {gpu: seconds for gpu, seconds in idle if seconds > 0}
    if not seconds_of:
        return None
    parts = sum(seconds_of.values()) / 3600 / max(1, of, len(seconds_of))
    return IdleCost(
        node=node,
        gpus=tuple(sorted(seconds_of)),
        seconds=max(seconds_of.values()),
        cost_usd=None if price_usd_h is None else round(price_usd_h * parts, 2),
    )
