"""The benchmark of overheads: its JSON, its table, and how it takes the best."""

import json

from benchmarks.overheads.row import Row, as_json, as_table, best_of
from benchmarks.overheads.runs import every_node, lines_of_date

ROW = Row("run", 2.6, 2.0, "ssh HEAD mpirun -np 16 date", 1.3)


def test_the_json_has_both_times_their_ratio_and_what_is_wanted() -> None:
    assert json.loads(json.dumps(as_json([ROW]))) == {
        "run": {
            "ours": 2.6,
            "peer": 2.0,
            "peer_name": "ssh HEAD mpirun -np 16 date",
            "ratio": 1.3,
            "wanted": 1.3,
        }
    }


def test_the_table_has_a_line_for_each_row() -> None:
    assert as_table([ROW]).splitlines()[-1] == (
        "| run | 2.60 | ssh HEAD mpirun -np 16 date | 2.00 | 1.30 | 1.3 |"
    )


def test_works_take_turns_and_the_best_of_each_counts() -> None:
    turns: list[str] = []

    def work(name: str, seconds: list[float]) -> float:
        turns.append(name)
        return seconds.pop(0)

    first, second = [3.0, 1.0, 2.0], [4.0, 6.0, 5.0]
    assert best_of(3, lambda: work("a", first), lambda: work("b", second)) == (1.0, 4.0)
    assert turns == ["a", "b", "a", "b", "a", "b"]


def test_the_slowest_node_and_the_last_rank_are_waited_for() -> None:
    seen = every_node(2)
    assert [seen(line) for line in ("[node1] a\n", "[node1] b\n", "-- node0\n", "[node0] a\n")] == [
        False, False, False, True,
    ]  # fmt: skip
    seen = lines_of_date(2)
    date = "[node0] Sun Nov 22 08:43:54 UTC 2026\n"
    assert [seen(line) for line in (date, "-- all ranks\n", date)] == [False, False, True]
