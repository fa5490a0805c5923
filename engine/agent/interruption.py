"""AWS's notice that it takes a spot instance back, as the instance's own metadata tells it."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from engine.agent.report import Report

METADATA = "169.254.169.254:80"
LOOK_S = 5.0
"""AWS recommends "that you check for these interruption notices every 5 seconds" ("Spot Instance
interruption notices", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/\
spot-instance-termination-notices.html, 2026-11-20)."""

_PATH = "/latest/meta-data/spot/instance-action"
_TOKEN_S = 21600  # the longest that IMDSv2 gives
_ANSWER_S = 2.0  # for an answer: the service is beside the instance


class Metadata:
    """The instance metadata service at `address` (`host:port`), asked by IMDSv2."""

    def __init__(self, address: str = METADATA) -> None:
        self._address = address
        self._token = ""

    def notice(self) -> tuple[str, str] | None:
        """What AWS will do with this instance (`terminate`) and when, as it writes it.

        None as long as it may stay. OSError, HTTPException or ValueError where there is no service,
        or none of this kind.
        """
        if not self._token:
            wanted = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            status, text = self._ask("PUT", "/latest/api/token", wanted)
            if status != http.client.OK:
                raise ValueError(f"no token: HTTP {status}")
            self._token = text
        status, text = self._ask("GET", _PATH, {"X-aws-ec2-metadata-token": self._token})
        if status == http.client.UNAUTHORIZED:
            self._token = ""  # its time is over: the next look takes another
        if status != http.client.OK:
            return None
        told: Any = json.loads(text)
        return str(told["action"]), str(told["time"])

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._address, timeout=_ANSWER_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536).decode()
        finally:
            connection.close()


def watch(metadata: Metadata, report: Report) -> None:
    """`node_interrupted` was sent: AWS takes this instance back. Looks for ever otherwise."""
    while True:
        try:
            notice = metadata.notice()
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            notice = None  # no answer now; the next look may have one
        if notice is not None:
            action, at = notice
            report.send("node_interrupted", action=action, at=at)
            return
        time.sleep(LOOK_S)
