"""How long gpuctl waits for capacity."""

from dataclasses import dataclass

from config.polling import Timeouts


@dataclass(frozen=True)
class CapacityTimes:
    """The waits for capacity.

    - `active`: for a claim to become active. AWS: "it can take up to 5 minutes for the state of the
      Capacity Reservation to reflect that it is active"
      (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-view.html,
      2026-11-22). It is shorter than claim.HELD, so that the machines still have time to start.
    - `known`: until EC2 knows a placement group or a reservation that it has just created. AWS
      advises to wait from seconds to five minutes
      (https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html, 2026-11-23).
    - `rounds`: the pauses between two rounds through the zones, for as long as `capacity.wait`.
    - `cleanup`: for the places of ended instances in a capacity block. AWS: "it takes several
      minutes to clean up your instance before you can launch another instance to replace it"
      (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html, 2026-11-26).
    """

    active: Timeouts
    known: Timeouts
    rounds: Timeouts
    cleanup: Timeouts


CAPACITY_TIMES = CapacityTimes(
    active=Timeouts(600, 2),
    known=Timeouts(120, 2),
    rounds=Timeouts(0, 5, 60, jitter=0.2),
    cleanup=Timeouts(20 * 60, 5),
)
