"""AWS's notices to an instance, from its metadata: of a spot instance's end, and of maintenance.

A spot instance has its notice two minutes before its end; a recommendation to leave it may come
before, and names no time: "EC2 instance rebalance recommendations",
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html, 2026-11-29.
Scheduled events, such as a retirement, are known days before: "View scheduled events for your
Amazon EC2 instances", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/\
monitoring-instances-status-check_sched.html, 2026-11-29.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Union

from engine.agent.journal.clock import time_of_day
from engine.agent.node.job_notice import epoch
from engine.contract.node_plan import NodePlan
from engine.contract.worker_events import NodeInterrupted, NoticeGiven

LOOK_S = 5.0
"""AWS recommends "that you check for these interruption notices every 5 seconds" ("Spot Instance
interruption notices", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/\
spot-instance-termination-notices.html, 2026-11-20)."""

MAINTENANCE_S = 60.0
"""Seconds between two checks for scheduled events."""
NOTICE_S = 900.0
"""Seconds before a scheduled event at which the job gets notice."""

_DATA = "/latest/meta-data/"
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

        Return None without a notice. All three raise OSError, HTTPException or ValueError if there
        is no metadata service, or not one of this kind, and KeyError or TypeError for another form.
        """
        notice = self._read("spot/instance-action")
        return None if notice is None else (str(notice["action"]), str(notice["time"]))

    def is_at_risk(self) -> bool:
        """Return whether AWS recommends to leave this spot instance."""
        return self._read("events/recommendations/rebalance") is not None

    def maintenance(self) -> list[tuple[str, float]]:
        """Return the scheduled events that are not over: `instance-retirement`, and the time.

        Their times are written as in `21 Jan 2019 09:00:43 GMT`.
        """
        events = self._read("events/maintenance/scheduled") or []
        return [
            (str(event["Code"]), epoch(event["NotBefore"], "%d %b %Y %H:%M:%S GMT"))
            for event in events
            if event["State"] == "active"
        ]

    def _read(self, path: str) -> Any:
        """Return the JSON of the path; None if AWS has nothing to say there."""
        if not self._token:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            status, text = self._ask("PUT", "/latest/api/token", headers)
            if status != http.client.OK:
                raise ValueError(f"no token: HTTP {status}")
            self._token = text
        status, text = self._ask("GET", _DATA + path, {"X-aws-ec2-metadata-token": self._token})
        if status == http.client.UNAUTHORIZED:
            self._token = ""  # it has expired: the next call gets a new one
        return json.loads(text) if status == http.client.OK else None

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._address, timeout=_ANSWER_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536).decode()
        finally:
            connection.close()


Notice = Union[NodeInterrupted, NoticeGiven]  # noqa: UP007  Python 3.9


def watch(
    metadata: Metadata,
    node: NodePlan,
    is_spot: bool,
    report: Callable[[Notice], None],
    look_s: float = LOOK_S,
    maintenance_s: float = MAINTENANCE_S,
) -> None:
    """Report each notice to the node once; return after that of a spot instance's end.

    Check for notices to a spot instance every `look_s`, for scheduled events every `maintenance_s`.
    """
    checks: list[tuple[float, Callable[[], Iterator[Notice]]]] = [
        (maintenance_s, lambda: _maintenance(metadata, node))
    ]
    if is_spot:
        checks.insert(0, (look_s, lambda: _spot(metadata, node)))
    due = [0.0] * len(checks)
    reported: set[Notice] = set()
    while True:
        for number, (pause_s, check) in enumerate(checks):
            if time.monotonic() < due[number]:
                continue
            due[number] = time.monotonic() + pause_s
            try:
                notices = list(check())
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                continue  # no answer now; try again later
            for notice in notices:
                if notice not in reported:
                    reported.add(notice)
                    report(notice)
                if isinstance(notice, NodeInterrupted):
                    return
        time.sleep(max(0.0, min(due) - time.monotonic()))


def _spot(metadata: Metadata, node: NodePlan) -> Iterator[Notice]:
    notice = metadata.notice()
    if notice is not None:
        yield NodeInterrupted(node.rank, *notice)
    elif metadata.is_at_risk():
        text = f"{node.name}'s spot instance is at risk: AWS recommends to leave it"
        yield NoticeGiven(node.rank, "rebalance", None, text)


def _maintenance(metadata: Metadata, node: NodePlan) -> Iterator[Notice]:
    for code, at in metadata.maintenance():
        if at - time.time() < NOTICE_S:
            text = f"AWS has scheduled {code} of {node.name} at {time_of_day(at)}"
            yield NoticeGiven(node.rank, "maintenance", at, text)
