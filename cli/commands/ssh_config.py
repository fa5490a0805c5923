"""`gpuctl ssh-config CLUSTER`: a cluster's nodes as hosts for ssh, scp and editors."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output
from config.command_text import command_text
from operations import login


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
    chosen, out = chosen_target(context), output(context)
    if remove:
        file, was_there = login.remove_hosts(chosen, cluster)
        text = f"{file} is removed" if was_there else f"{cluster} has no hosts in {file}"
        out.show({"file": str(file), "removed": was_there}, [text])
        return
    hosts = login.plan_hosts(chosen, cluster)
    if hosts.include is not None:
        out.confirm(f"Write `{hosts.include}` as the first line of {hosts.settings}?", yes)
    login.write_hosts(hosts)
    names, settings = list(hosts.names), str(hosts.settings)
    document = {"file": str(hosts.file), "config": settings, "hosts": names}
    host = f"ssh-remote+{names[0]}"
    out.show(
        document,
        [
            f"{hosts.file} has {', '.join(names)}: try {command_text('ssh {}', names[0])}",
            f"VS Code and Cursor: {command_text('code --remote {} DIR', host)},"
            f" {command_text('cursor --remote {} DIR', host)}",
        ],
    )
