"""The notices of a run: which lines of its journal have one, their texts and their bodies."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from config.run.notify import EVENTS
from engine.agent.notify.notices import (
    Notice,
    Notices,
    email_body,
    json_body,
    slack_body,
    variables,
    wants,
    words,
)
from engine.contract.event import Event, change
from engine.contract.head_events import AttemptStarted, BudgetNearing, RunFinished
from engine.contract.worker_events import NodeInterrupted
from engine.plan.notification_examples import examples
from tests.engine.bare_events import QUEUED, STARTED, printed
from tests.engine.conftest import make_plan

PAGE = Path(__file__).parents[4] / "docs/do/notifications.md"
PLAN = make_plan(retry={"attempts": 3})
AT = 1795420800.0  # 2026-11-23T08:00:00Z
WHO = "run job-000001 on cluster demo"


def read(*events: Event) -> list[Notice]:
    notices = Notices(PLAN)
    found = [notices.read(event if event.time else change(event, time=AT)) for event in events]
    return [notice for notice in found if notice is not None]


def test_there_is_an_example_of_every_event() -> None:
    assert tuple(notice.event for notice in examples(PLAN, AT)) == EVENTS


def test_the_texts() -> None:
    assert [notice.text for notice in examples(PLAN, AT)] == [
        f"{WHO} has started on 2 nodes",
        f"{WHO}: attempt 1 of 3 failed: node0: exited with 1; another one follows in 5 s",
        f"{WHO} waits for node0, for 1 h at most: `gpuctl attach job-000001` makes lost nodes"
        " again",
        f"{WHO}: AWS takes node0's spot instance back: terminate at 2026-11-23T08:22:00Z",
        f"{WHO}: the run is stopped at 08:30:00 UTC, in 5 min",
        f"{WHO}: the cluster's lifetime ends at 2026-11-23T10:00:00Z, in 15 min; its nodes power"
        " off then, and the rest costs until `gpuctl down demo`",
        f"{WHO}: the cluster has cost about $80.00, 80 % of budget.max_total ($100.00); it reaches"
        " that at 2026-11-23T10:15:00Z; `gpuctl down demo` ends the cost",
        f"{WHO} has failed after 1 h 50 min with exit code 1: node0: exited with 1",
        f"{WHO} is done after 1 h 50 min",
    ]


def test_the_page_has_a_body_and_the_keys_of_every_event() -> None:
    page = PAGE.read_text()
    first, *others = [json.loads(json_body(notice)) for notice in examples(PLAN, AT)]
    assert f"```json\n{json.dumps(first, indent=2)}\n```" in page
    in_all = [key for key in first if key != "queued_s"]
    for body in (first, *others):
        keys = ", ".join(f"`{key}`" for key in body if key not in in_all)
        (row,) = re.findall(rf"^\| `{body['event']}` \|.*", page, re.MULTILINE)
        assert row.endswith(f" | {keys} |")


def test_the_page_has_slacks_body() -> None:
    *_, failure, _ = examples(PLAN, AT)
    assert f"```json\n{slack_body(failure)}\n```" in PAGE.read_text(), slack_body(failure)


def test_the_text_of_an_email() -> None:
    *_, failure, _ = examples(PLAN, AT)
    assert json.loads(email_body(failure))["text"] == (
        f"{WHO} has failed after 1 h 50 min with exit code 1: node0: exited with 1\n\n"
        "event: failure\ntime: 2026-11-23T09:50:00Z\nrun_id: job-000001\nname: job\n"
        "cluster: demo\nnodes: node0, node1\nattempt: 1\nstatus: failed\nduration_s: 6600\n"
        "exit_code: 1\nreason: node0: exited with 1\nfailed_node: node0\n"
    )


def test_slacks_special_characters() -> None:
    (notice,) = read(RunFinished("stopped", 130, None, "<!channel> & co"))
    assert json.loads(slack_body(notice))["text"] == (
        f"{WHO} was stopped: &lt;!channel&gt; &amp; co"
    )
    assert json.loads(json_body(notice))["text"] == f"{WHO} was stopped: <!channel> & co"


def test_the_start_of_a_queued_run_has_its_wait() -> None:
    notices = read(
        replace(QUEUED, time=AT),
        replace(QUEUED, time=AT + 60),
        replace(STARTED, time=AT + 7320),
    )
    assert [one.text for one in notices] == [
        f"{WHO} has started on 2 nodes, after 2 h 2 min in the queue"
    ]
    assert notices[0].fields["queued_s"] == 7320


def test_the_number_and_the_attempt() -> None:
    started, interrupted = read(
        STARTED,
        printed("hello"),
        AttemptStarted(2),
        NodeInterrupted(1, "terminate", "x"),
    )
    assert json.loads(json_body(started))["id"] == "job-000001/1"
    assert json.loads(json_body(interrupted))["id"] == "job-000001/2"
    assert (started.fields["attempt"], interrupted.fields["attempt"]) == (1, 2)


def test_a_fleet_that_is_reclaimed_has_ten_notices() -> None:
    notices = read(*[NodeInterrupted(1, "terminate", "x")] * 12)
    assert len(notices) == 10
    assert [one.text.endswith("; further ones are not reported") for one in notices] == (
        [False] * 9 + [True]
    )


def test_a_long_reason_is_cut() -> None:
    (notice,) = read(RunFinished("failed", 1, 1, 5000 * "x"))
    assert notice.fields["reason"] == 1999 * "x" + "…"
    assert notice.text.endswith("exit code 1: " + 1999 * "x" + "…")
    assert notice.fields["failed_node"] == "node1"


@pytest.mark.parametrize(
    ("spent", "shown"),
    [
        (
            79.99999999,
            "80 % of budget.max_total ($100.00); it reaches that at 2026-11-23T08:01:00Z",
        ),
        (99.9, "99 % of budget.max_total ($100.00); it reaches that at 2026-11-23T08:01:00Z"),
        (100.0, "100 % of budget.max_total ($100.00)"),
        (250.0, "250 % of budget.max_total ($100.00)"),
    ],
)
def test_a_budget_has_its_share_in_whole_percent(spent: float, shown: str) -> None:
    (notice,) = read(BudgetNearing(spent, 100.0, AT + 60))
    cost = f"the cluster has cost about ${spent:,.2f}"
    assert notice.text == f"{WHO}: {cost}, {shown}; `gpuctl down demo` ends the cost"


def test_variables_of_a_command() -> None:
    (notice,) = read(STARTED)
    assert variables(notice) == {
        "GPUCTL_EVENT": "start",
        "GPUCTL_TEXT": f"{WHO} has started on 2 nodes",
        "GPUCTL_RUN_ID": "job-000001",
        "GPUCTL_CLUSTER": "demo",
    }


@pytest.mark.parametrize(
    ("on", "event", "expected"),
    [
        (["failure"], "failure", True),
        (["failure"], "end", False),
        (["end"], "end", True),
        (["end"], "failure", True),
        (["start"], "failure", False),
    ],
)
def test_a_failure_is_an_end_too(on: list[str], event: str, expected: bool) -> None:
    assert wants(on, event) is expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (0.4, "0 s"), (45, "45 s"), (60, "1 min"), (61, "1 min 1 s")),
        *((3600, "1 h"), (3605, "1 h"), (7320, "2 h 2 min"), (93600, "1 d 2 h"), (-3, "0 s")),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert words(seconds) == text
