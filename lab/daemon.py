"""The lab's daemon: network, API, provider and machines live as long as this process.

`python -m lab.daemon --ready-fd N`; lab.lifecycle starts it. One JSON line on the descriptor says
that the lab is ready, or why not.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from config.errors import LabError
from lab import network, state
from lab.api.machines import BootedMachines
from lab.api.metadata import MetadataServer
from lab.api.server import ApiServer

PROVIDER_SECONDS = 5.0
"""How long the provider may take to end."""

log = logging.getLogger("lab.daemon")


def main() -> None:
    """The lab has been up, and nothing of it is left."""
    parser = argparse.ArgumentParser(description="the lab's daemon; see `gpuctl lab start`")
    parser.add_argument("--ready-fd", type=int, required=True, help="where to say: ready")
    ready = parser.parse_args().ready_fd
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    ended = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as lab:
        try:
            lab.enter_context(state.hold_alive())
            record = _bring_up(lab)
        except LabError as error:
            log.exception("the lab could not start")
            _say(ready, {"message": error.message, "hint": error.hint})
            raise SystemExit(1) from None
        _say(ready, {})
        log.info("ready: %s", record)
        ended.wait()
        log.info("going down")
    log.info("down")


def _bring_up(lab: ExitStack) -> state.Record:
    """Everything runs; `lab` takes it down again in reverse order."""
    lab.callback(network.down)
    network.up()
    machines = BootedMachines()
    api = ApiServer(machines, state.CAPACITY, network.API_ADDRESSES, faults=state.FAULTS)
    lab.callback(api.close)
    lab.callback(machines.close)
    metadata = MetadataServer(network.listen(network.METADATA_ADDRESS, 80), api.metadata)
    lab.callback(metadata.close)
    record = state.Record(
        pid=os.getpid(),
        api_url=api.url,
        provider_address=f"127.0.0.1:{_start_provider(lab, api.url)}",
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    state.publish(record)
    lab.callback(state.RECORD.unlink, missing_ok=True)  # first to go: nobody new comes
    return record


def _start_provider(lab: ExitStack, endpoint: str) -> int:
    """The Pulumi provider runs; its port on loopback."""
    provider = subprocess.Popen(
        [sys.executable, "-m", "lab.provider", "--endpoint", endpoint],
        stdin=subprocess.PIPE,  # it ends when this closes, should we be killed
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        start_new_session=True,
    )
    lab.callback(_end, provider)
    assert provider.stdout is not None
    line = provider.stdout.readline().strip()
    if not line.isdigit():
        raise LabError("the lab's Pulumi provider did not start", f"see {state.LOG}")
    return int(line)


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
