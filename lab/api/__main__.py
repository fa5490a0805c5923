"""The lab's API alone, without machines: `python -m lab.api --port 5000`.

Clients may use any region. The server reads its access key from its environment; clients sign
their requests with the same key:

    export AWS_ACCESS_KEY_ID=lab AWS_SECRET_ACCESS_KEY=lab AWS_EC2_METADATA_DISABLED=true
    python -m lab.api --port 5000 &
    AWS_ENDPOINT_URL=http://127.0.0.1:5000 aws ec2 describe-images

The first line on standard output is the URL; it serves until SIGINT or SIGTERM.
"""

import argparse
import signal
import sys
from pathlib import Path

from config.errors import LabError
from lab.access_key import AccessKey
from lab.api.server import ApiServer


def main() -> None:
    """Serve on loopback until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description="the lab's AWS API, without machines")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1, 0: any free")
    parser.add_argument("--capacity", type=Path, help="JSON table of capacity per zone and type")
    parser.add_argument("--faults", type=Path, help="JSON table of faults (lab.fault_table)")
    parser.add_argument("--requests", type=Path, help="a folder to record the requests in")
    arguments = parser.parse_args()
    try:
        key = AccessKey.from_environment()
    except LabError as error:
        parser.error(str(error))
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with ApiServer(
        key, port=arguments.port, capacity=arguments.capacity, faults=arguments.faults
    ) as api:
        if arguments.requests:
            api.record_requests(arguments.requests)
        sys.stdout.write(f"{api.url}\n")
        sys.stdout.flush()
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
