"""`gpuctl revoke CLUSTER KEY`: take a colleague's access to a cluster away."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from config.folded_names import fold
from operations import team


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
    chosen, out = chosen_target(context), output(context)
    access = team.revoke(chosen, cluster, key)
    ended = f"; {access.ended} open connections ended" if access.ended else ""
    if access.ended == 1:
        ended = "; 1 open connection ended"
    document = {
        "cluster": cluster,
        "keys": [{"name": taken.name, "fingerprint": taken.fingerprint} for taken in access.keys],
        "machines": list(access.machines),
        "ended_connections": access.ended,
        "unchecked": list(access.unchecked),
    }
    machines = fold(access.machines)
    lines = [
        f"{taken.name} ({taken.fingerprint}) has no access to {cluster}: {machines}{ended}"
        for taken in access.keys
    ]
    out.show(document, lines)
    if access.unchecked:
        out.warn(
            f"{fold(access.unchecked)}: connections that are open with the key may stay, because"
            " gpuctl cannot read sshd's log there; a reboot of the machine ends them"
        )
