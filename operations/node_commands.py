"""Commands of a person on all nodes of a cluster."""

from collections.abc import Mapping

from config.errors import GpuctlError
from nodes import dial
from nodes.answers import Completed, broker_lost, error_of, no_broker, parse_answer
from operations.chosen_target import ChosenTarget

__all__ = ["Completed", "run_on_all_nodes"]


def run_on_all_nodes(
    chosen: ChosenTarget, cluster: str, line: str
) -> Mapping[str, Completed | GpuctlError]:
    """Run the shell line on all nodes at once; return one entry per node name, in rank order.

    Raises NodeError if no node could be asked, InputError for an unknown cluster.
    """
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    folder = str(inventory.folder)
    try:
        connection = dial.dial(folder, inventory.model_dump(mode="json"))
        answers = dial.run_everywhere(connection, line)
    except dial.BrokerLost:
        raise broker_lost(cluster, folder) from None
    except OSError as error:
        raise no_broker(folder, error) from error
    if failure := error_of(answers):
        raise failure
    return {node.name: parse_answer(answers[node.name]) for node in inventory.nodes}
