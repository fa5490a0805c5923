"""AWS's notice that it reclaims a spot instance, from the instance's metadata."""

from __future__ import annotations

import http.client
import json
import os
import time
from typing import Any

from engine.agent.link.event_stream import EventStream
from engine.contract.worker_events import NodeInterrupted

LOOK_S = 5.0
"""AWS recommends "that you check for these interruption notices every 5 seconds" ("Spot Instance
interruption notices", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/\
spot-instance-termination-notices.html, 2026-11-20)."""

_PATH = "/latest/meta-data/spot/instance-action"
_TOKEN_S = 21600  # the longest that IMDSv2 gives
_ANSWER_S = 2.0  # for an answer; the service is local


ADDRESS = "169.254.169.254:80"
ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""The variable that names another address of the service, as a URL: AWS's SDKs read it too
(https://docs.aws.amazon.com/sdkref/latest/guide/feature-imds-credentials.html)."""


def metadata_address() -> str:
    """Return the address of this instance's metadata service (`host:port`)."""
    return os.environ.get(ENDPOINT, ADDRESS).removeprefix("http://").rstrip("/")


class Metadata:
    """The instance metadata service (IMDSv2) at `address` (`host:port`)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._token = ""

    def notice(self) -> tuple[str, str] | None:
        """Return AWS's action for this instance (`terminate`) and its time, as AWS writes it.

        Return None without a notice. Raises OSError, HTTPException or ValueError if there is no
        metadata service, or not one of this kind.
        """
        if not self._token:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            status, text = self._ask("PUT", "/latest/api/token", headers)
            if status != http.client.OK:
                raise ValueError(f"no token: HTTP {status}")
            self._token = text
        status, text = self._ask("GET", _PATH, {"X-aws-ec2-metadata-token": self._token})
        if status == http.client.UNAUTHORIZED:
            self._token = ""  # it has expired: the next call gets a new one
        if status != http.client.OK:
            return None
        notice: Any = json.loads(text)
        return str(notice["action"]), str(notice["time"])

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._address, timeout=_ANSWER_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536).decode()
        finally:
            connection.close()


def watch(metadata: Metadata, rank: int, report: EventStream, look_s: float = LOOK_S) -> None:
    """Check for a notice every `look_s`; send `node_interrupted` and return when there is one."""
    while True:
        try:
            notice = metadata.notice()
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            notice = None  # no answer now; try again later
        if notice is not None:
            action, at = notice
            report.send(NodeInterrupted(rank, action, at))
            return
        time.sleep(look_s)
