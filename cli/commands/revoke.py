"""`gpuctl revoke CLUSTER KEY`: take a colleague's access to a cluster away."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output


def revoke(
    context: typer.Context,
    cluster: ClusterArgument,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="The key's name or fingerprint, its file, or the key itself."
        ),
    ],
) -> None:
    """Take a colleague's access to a cluster away.

    Connections that are open with the key end at once. gpuctl's own key cannot be revoked.

    $ gpuctl revoke demo ann@laptop
    """
    from nodes.names import fold
    from provision.access import revoke as take

    target, out = chosen_target(context).cluster_target(cluster), output(context)
    done = take(cluster, key, target)
    ended = f"; {done.ended} open connections ended" if done.ended else ""
    if done.ended == 1:
        ended = "; 1 open connection ended"
    document = {
        "cluster": cluster,
        "keys": [{"name": one.name, "fingerprint": one.fingerprint} for one in done.keys],
        "machines": list(done.machines),
        "ended_connections": done.ended,
        "unchecked": list(done.unchecked),
    }
    lines = [
        f"{one.name} ({one.fingerprint}) has no access to {cluster}: {fold(done.machines)}{ended}"
        for one in done.keys
    ]
    out.show(document, lines)
    if done.unchecked:
        there = fold(done.unchecked)
        out.warn(
            f"{there}: connections that are open with the key may stay, because gpuctl cannot read"
            " sshd's log there; a reboot of the machine ends them"
        )
