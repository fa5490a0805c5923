"""The lab's daemon: network, API, provider and machines live as long as this process.

`python -m lab.daemon --lab NAME --ready-fd N`; lab.lifecycle starts it. One JSON line on the
descriptor says that the lab is ready, or why not.
"""

import argparse
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from config.errors import LabError
from lab import state
from lab.access_key import AccessKey
from lab.api.machines import BootedMachines
from lab.api.metadata import MetadataServer
from lab.api.server import ApiServer
from lab.network.bridge import METADATA_ADDRESS, LabNetwork
from lab.places import Places

PROVIDER_SECONDS = 5.0
"""How long the provider may take to end."""

log = logging.getLogger("lab.daemon")


def main() -> None:
    """Keep the lab up until a signal comes, then remove all of it."""
    os.umask(0o022)  # machines' files are for all of their users, whatever the command's mask
    parser = argparse.ArgumentParser(description="the lab's daemon; see `gpuctl lab start`")
    parser.add_argument("--ready-fd", type=int, required=True, help="where to say: ready")
    parser.add_argument("--lab", required=True, metavar="NAME", help="which lab this is")
    given = parser.parse_args()
    ready, places = given.ready_fd, Places(given.lab)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    ended = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as lab:
        try:
            lab.enter_context(state.hold_alive(places))
            record = _bring_up(lab, places)
        except LabError as error:
            log.exception("the lab could not start")
            _say(ready, {"message": error.message, "hint": error.hint})
            raise SystemExit(1) from None
        _say(ready, {})
        log.info("ready: %s", record)
        ended.wait()
        log.info("going down")
    log.info("down")


def _bring_up(lab: ExitStack, places: Places) -> state.LabRecord:
    """Start everything; `lab` takes it down again in reverse order."""
    network = LabNetwork.claim(places)
    lab.callback(network.down)
    network.up()
    machines = BootedMachines(network)
    key = AccessKey.new()
    api = ApiServer(
        key,
        machines,
        places.capacity,
        faults=places.faults,
        public_range=network.slot.public_range,
    )
    lab.callback(api.close)
    api.record_requests(places.requests)
    network.guard(api.port)
    lab.callback(machines.close)
    metadata = MetadataServer(network.listen(METADATA_ADDRESS, 80), api.metadata)
    lab.callback(metadata.close)
    record = state.LabRecord(
        pid=os.getpid(),
        api_url=api.url,
        provider_address=f"127.0.0.1:{_start_provider(lab, api, network, key)}",
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        key=key,
    )
    state.publish(record, places)
    lab.callback(places.record.unlink, missing_ok=True)  # first to go: nobody new comes
    return record


def _start_provider(lab: ExitStack, api: ApiServer, network: LabNetwork, key: AccessKey) -> int:
    """Start the Pulumi provider; return its port on loopback, which is guarded before."""
    with socket.socket() as held:
        # The provider shares the port with us (gRPC sets this option), and nobody else can take it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
        network.guard(port)
        provider = _provider(api.url, port, key, network.places.faults)
        lab.callback(_end, provider)
        assert provider.stdout is not None
        if provider.stdout.readline().strip() != str(port):
            log = network.places.log
            raise LabError("the lab's Pulumi provider did not start", f"see {log}")
    return port


def _provider(endpoint: str, port: int, key: AccessKey, faults: Path) -> subprocess.Popen[str]:
    words = ["--endpoint", endpoint, "--port", str(port), "--faults", str(faults)]
    return subprocess.Popen(
        [sys.executable, "-m", "lab.provider", *words],
        stdin=subprocess.PIPE,  # it ends when this closes, should we be killed
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **key.environment},
        cwd=Path(__file__).parents[1],
        start_new_session=True,
    )


def _end(provider: subprocess.Popen[str]) -> None:
    assert provider.stdin is not None
    provider.stdin.close()  # which it takes for the end
    try:
        provider.wait(PROVIDER_SECONDS)
    except subprocess.TimeoutExpired:
        provider.kill()
        provider.wait()


def _say(descriptor: int, answer: dict[str, str]) -> None:
    with os.fdopen(descriptor, "w") as ready:
        ready.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
