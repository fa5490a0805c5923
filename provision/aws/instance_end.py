"""Whether AWS says that a machine does not run any more."""

from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.resources import ALIVE


def instance_end(target: Target, instance_id: str) -> str:
    """Return how the instance ended (`is stopped: …`), with EC2's reason; empty while it runs.

    Raises CloudError if AWS cannot be asked.
    """
    with aws_errors():
        wanted = [{"Name": "instance-id", "Values": [instance_id]}]
        answer = client(target, "ec2", 1).describe_instances(Filters=wanted)  # type: ignore[arg-type]
    for reservation in answer["Reservations"]:
        for one in reservation["Instances"]:
            state, reason = str(one["State"]["Name"]), one.get("StateReason", {}).get("Message", "")
            if state in ALIVE:
                return ""
            return f"is {state}: {reason}" if reason else f"is {state}"
    return "does not exist any more"  # EC2 lists an ended instance for about an hour
