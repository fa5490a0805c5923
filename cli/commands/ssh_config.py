"""`gpuctl ssh-config CLUSTER`: a cluster's nodes as hosts for ssh, scp and editors."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output


def ssh_config(
    context: typer.Context,
    cluster: ClusterArgument,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the hosts; `gpuctl down` does it too.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Add a cluster's nodes to your ssh settings.

    Host demo-node0 and so on, with the bastion and pinned host keys, for ssh, scp, rsync and
    editors. They are in ~/.ssh/gpuctl/demo.conf, which ~/.ssh/config includes; gpuctl asks before
    it adds that line. They follow changes of the cluster, and end with it.

    $ gpuctl ssh-config demo
    $ gpuctl ssh-config demo --remove
    """
    from nodes import ssh_hosts
    from provision.records.record import load_inventory

    target, out = chosen_target(context).cluster_target(cluster), output(context)
    inventory = load_inventory(cluster, target)
    path = ssh_hosts.hosts_file(cluster)
    if remove:
        gone = ssh_hosts.remove_hosts(cluster, inventory.folder)
        text = f"{path} is removed" if gone else f"{cluster} has no hosts in {path}"
        out.show({"file": str(path), "removed": gone}, [text])
        return
    config = ssh_hosts.user_config()
    if not ssh_hosts.has_include(config):
        line = ssh_hosts.include_line()
        out.confirm(f"Write `{line}` as the first line of {config}?", yes)
        ssh_hosts.add_include(config)
    ssh_hosts.write_hosts(inventory)
    hosts = [f"{cluster}-{node.name}" for node in inventory.nodes]
    hosts += [f"{cluster}-bastion"] if inventory.bastion else []
    document = {"file": str(path), "config": str(config), "hosts": hosts}
    out.show(document, [f"{path} has {', '.join(hosts)}: try `ssh {hosts[0]}`"])
