"""Regions one after the other in one process, which imports moto or Pulumi's provider once.

`python -m tests.infra.worlds api` or `provider`. Each line on standard input ends what serves and
begins another: a fresh and empty region whose capacity table is the file of that name, with
`faults.json` next to it as its table of faults, or a provider for the endpoint of that name. The
answer is a line too: a URL, or a port. An empty line only ends what serves.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

Begin = Callable[[str, ExitStack], str]


def _api(capacity: str, there: ExitStack) -> str:
    from lab.access_key import AccessKey
    from lab.api.server import ApiServer

    key = AccessKey.from_environment()
    table = Path(capacity)
    faults = table.with_name("faults.json")
    return there.enter_context(ApiServer(key, capacity=table, faults=faults)).url


def _provider(endpoint: str, there: ExitStack) -> str:
    from lab.provider.server import serve

    server, port = serve(endpoint)
    there.callback(lambda: server.stop(grace=None).wait())
    return str(port)


def main() -> None:
    """Serve until standard input ends."""
    begin: Begin = {"api": _api, "provider": _provider}[sys.argv[1]]
    with ExitStack() as there:
        for line in sys.stdin:
            there.close()
            wanted = line.rstrip("\n")
            sys.stdout.write(f"{begin(wanted, there) if wanted else ''}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
