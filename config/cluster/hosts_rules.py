"""Rules about cluster files with `hosts`: raw data in, mistakes out."""

from collections.abc import Iterator, Mapping
from typing import Any

from config.cluster.cluster_file import Cluster
from config.cluster.hosts_file import HostsCluster
from config.errors import InputError
from config.folded_names import expand
from config.mistakes import Mistake

RENTED_ONLY = tuple(key for key in Cluster.model_fields if key not in HostsCluster.model_fields)
"""Keys of clusters that gpuctl rents: they say nothing about machines that exist."""


def hosts_mistakes(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistakes in a cluster file with `hosts` beyond types."""
    for key in RENTED_ONLY:
        if key in data:
            message = f"'{key}' is for a cluster that gpuctl rents, and this file has 'hosts'"
            yield Mistake("E232", message, "remove it, or remove 'hosts'", (key,), on_key=True)
    hosts = data.get("hosts")
    if not isinstance(hosts, tuple):
        return
    known: dict[str, int] = {}
    for number, host in enumerate(hosts):
        if not isinstance(host, dict) or not isinstance(host.get("address"), str):
            continue
        try:
            addresses = expand(host["address"])
        except InputError:
            continue  # the field's own check reports it
        if len(addresses) > 1 and "internal" in host:
            message = f"'internal' is one address, and 'address' means {len(addresses)} hosts"
            hint = "write an entry for each host"
            yield Mistake("E233", message, hint, ("hosts", number, "internal"))
        for address in addresses:
            first = known.setdefault(address, number)
            if first != number:
                message = f"host {address} is in 'hosts[{first}]' too"
                yield Mistake("E233", message, "remove one", ("hosts", number, "address"))
