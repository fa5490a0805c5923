"""Regions one after the other in one process, which imports moto or Pulumi's provider once.

`python -m tests.infra.worlds api` or `provider`. Each line on standard input ends what serves and
begins another: a fresh and empty region, or a provider for an endpoint. The line has the options
of `lab.api` or `lab.provider` as JSON, its answer is a URL or a port. `null` only ends what serves.
"""

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

Begin = Callable[[dict[str, Any], ExitStack], str]


def _api(wanted: dict[str, Any], there: ExitStack) -> str:
    from lab.access_key import AccessKey
    from lab.api.server import ApiServer
    from tests.leaks.moments import Moments

    key = AccessKey.from_environment()
    capacity, faults = Path(wanted["capacity"]), Path(wanted["faults"])
    api = there.enter_context(ApiServer(key, capacity=capacity, faults=faults))
    api.surround(lambda inner: Moments(inner, Path(wanted["moment"])))
    return api.url


def _provider(wanted: dict[str, Any], there: ExitStack) -> str:
    from lab.provider.server import serve

    server, port = serve(wanted["endpoint"], faults=Path(wanted["faults"]))
    there.callback(lambda: server.stop(grace=None).wait())
    return str(port)


def main() -> None:
    """Serve until standard input ends."""
    begin: Begin = {"api": _api, "provider": _provider}[sys.argv[1]]
    with ExitStack() as there:
        for line in sys.stdin:
            there.close()
            wanted = json.loads(line)
            sys.stdout.write(f"{begin(wanted, there) if wanted else ''}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
