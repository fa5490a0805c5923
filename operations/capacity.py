"""Where an instance type is available, its prices, and the purchase of a capacity block."""

from config.errors import InputError
from config.quantities import money
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision.aws.account import caller, owner_tag
from provision.capacity import offers
from provision.capacity.offers import BlockOffering, BlockSize, CapacityReport, ReservedCapacity

__all__ = ["BlockOffering", "BlockSize", "CapacityReport", "ReservedCapacity"]


def find(
    chosen: ChosenTarget,
    instance_type: str,
    size: BlockSize,
    *,
    watcher: Watcher = LoggingWatcher(),
) -> CapacityReport:
    """Return zones, reservations, blocks of the size, and prices; nothing is reserved."""
    chosen.ensure_lab(watcher.report)
    return offers.capacity(instance_type, size, chosen.target())


def find_block(
    chosen: ChosenTarget,
    instance_type: str,
    size: BlockSize,
    *,
    zone: str | None = None,
    watcher: Watcher = LoggingWatcher(),
) -> BlockOffering:
    """Return the earliest block that AWS offers now, in the zone if one is given."""
    chosen.ensure_lab(watcher.report)
    return offers.find_block(instance_type, size, zone, chosen.target())


def buy(chosen: ChosenTarget, block: BlockOffering, pay: float) -> ReservedCapacity:
    """Buy the block for `pay` dollars, which AWS charges at once; return the reservation.

    AWS never takes a block back. Raises InputError if the block costs another sum.
    """
    if round(pay, 2) != round(block.upfront_usd, 2):
        raise InputError(
            f"the block in {block.zone} from {block.starts} on costs {money(block.upfront_usd)},"
            f" and you would pay {money(pay)}",
            f"pay {block.upfront_usd:.2f} if that is what you want",
        )
    target = chosen.target()
    return offers.buy_block(block, owner_tag(caller(target), target), target)
