"""`gpuctl ssm-proxy INSTANCE`: what ssh runs to reach a node through Session Manager.

Not for people: `gpuctl ssh`, `exec` and `run` start it, as ssh's ProxyCommand or by themselves.
"""

from typing import Annotated

import typer

from cli.options import chosen_target
from operations import login


def ssm_proxy(context: typer.Context, instance: Annotated[str, typer.Argument()]) -> None:
    """Connect standard input and output with the ssh of an instance; this process becomes that."""
    login.become_session(chosen_target(context), instance)
