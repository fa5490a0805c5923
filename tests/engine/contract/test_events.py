"""What every event keeps: its JSON for users, its line in a journal, what is for supervisors."""

import json

import pytest

from engine.contract.codec import from_json
from engine.contract.event import to_line
from engine.contract.events import EVENTS
from engine.contract.head_events import NodeLost, NodeUnreachable, RunNode, RunQueued
from engine.contract.worker_events import ClockSet, NodeStopped
from engine.record.events import event_json, parse_event

NODE = RunNode(rank=0, name="node0", private_ip="10.0.0.1", role="master")
QUEUED = RunQueued(
    run_id="job-000001",
    name="job",
    cluster="demo",
    on_stop="keep",
    nodes=(NODE,),
    place=2,
    ahead=("one-000001",),
    time=1.5,
    boot_id="b",
    clock=2.0,
)


def test_a_line_has_all_fields() -> None:
    lost = NodeLost(rank=2, reason="no answer", time=1.5, symptom="was lost: no answer")
    assert to_line(lost) == (
        '{"kind": "node_lost", "time": 1.5, "rank": 2, "reason": "no answer",'
        ' "symptom": "was lost: no answer"}'
    )


def test_users_see_no_fields_of_supervisors_and_the_order_that_they_know() -> None:
    assert event_json(QUEUED) == (
        '{"kind":"run_queued","time":1.5,"run_id":"job-000001","name":"job","cluster":"demo",'
        '"on_stop":"keep","outputs":[],"saved":"","notifies":false,"ports":[],'
        '"owner":"","stop_grace_s":10,"nodes":[{"rank":0,"name":"node0","private_ip":"10.0.0.1","role":"master"}],'
        '"place":2,"ahead":["one-000001"]}'
    )
    assert event_json(NodeStopped(rank=1, time=2.0, exit_code=143, signal=15)) == (
        '{"kind":"node_stopped","time":2.0,"rank":1,"reason":""}'
    )
    assert event_json(ClockSet(rank=None, seconds=-60.0, text="set back", time=3.0)) == (
        '{"kind":"clock_set","time":3.0,"level":"warning","rank":null,"seconds":-60.0,'
        '"text":"set back"}'
    )


@pytest.mark.parametrize("event", [QUEUED, NodeStopped(rank=1, time=2.0, exit_code=143, signal=15)])
def test_agent_and_client_read_what_was_written(event: RunQueued | NodeStopped) -> None:
    line = to_line(event)
    agents, clients = from_json(EVENTS[event.kind], json.loads(line)), parse_event(line)
    assert vars(agents) == vars(event)
    assert clients == event


def test_events_are_equal_if_their_class_and_public_values_are() -> None:
    lost = NodeLost(rank=2, reason="no answer", time=1.5, symptom="was lost")
    same = NodeLost(rank=2, reason="no answer", time=1.5)
    assert lost == same
    assert hash(lost) == hash(same)
    assert lost != NodeLost(rank=1, reason="no answer", time=1.5)
    assert lost != NodeUnreachable(rank=2, reason="no answer", time=1.5)
    assert repr(same) == "NodeLost(rank=2, reason='no answer', time=1.5, symptom='')"
