"""The cases of a run of nccl-tests: what is listed, launched, announced and stored."""

import json
from dataclasses import replace
from typing import Any

import pytest

from config.run.run_file import NcclTests
from engine.agent.judge.output_reader import OutputReader
from engine.contract.codec import from_json, to_json
from engine.contract.event import Event
from engine.contract.head_events import CaseStarted
from engine.contract.plan import Case, LaunchPlan, Sweep
from engine.contract.worker_events import Output, Stream, TableWritten
from engine.plan.cases import binary_size, list_cases, size_flag
from tests.engine.agent.judge.test_nccl_tests import out
from tests.engine.agent.judge.test_numbers import document, row, table
from tests.engine.plan.test_modes import planned, run_of
from tests.engine.read_output import TablesOfOutput

FOLDER = "/var/lib/gpuctl/runs/job-000001"


def cases(**fields: Any) -> list[str]:
    run = run_of(type="nccl-tests", **fields)
    assert isinstance(run, NcclTests)
    found = list_cases(run, ["node0", "node1"])
    assert [case.number for case in found] == [*range(1, len(found) + 1)]
    return [case.title for case in found]


def calls(plan: LaunchPlan) -> list[str]:
    """The lines of the head's script that run cases."""
    lines = plan.nodes[0].script.splitlines()
    return [line.replace(FOLDER, "<run>") for line in lines if f"{FOLDER}/rank.sh" in line]


def test_every_combination_is_a_case_and_repetitions_follow_each_other() -> None:
    fields: dict[str, Any] = {
        "collectives": ("all_reduce", "reduce"),
        "sizes": ("1M", "1536"),
        "sweep": {"NCCL_ALGO": ("Ring", "Tree")},
        "repeat": 2,
    }
    found = cases(**fields)
    assert len(found) == 16
    assert found[:5] == [
        "all_reduce 1 MiB, NCCL_ALGO=Ring, repetition 1 of 2",
        "all_reduce 1 MiB, NCCL_ALGO=Ring, repetition 2 of 2",
        "all_reduce 1536 B, NCCL_ALGO=Ring, repetition 1 of 2",
        "all_reduce 1536 B, NCCL_ALGO=Ring, repetition 2 of 2",
        "all_reduce 1 MiB, NCCL_ALGO=Tree, repetition 1 of 2",
    ]
    assert found[8].startswith("reduce 1 MiB")


def test_a_range_is_one_case_and_types_and_reductions_are_cases() -> None:
    assert cases() == ["all_reduce 8 B to 8 GiB"]
    assert cases(sizes=("1G",), dtypes=("half", "float"), redops=("sum", "max")) == [
        "all_reduce 1 GiB, half, sum",
        "all_reduce 1 GiB, half, max",
        "all_reduce 1 GiB, float, sum",
        "all_reduce 1 GiB, float, max",
    ]


def test_intra_is_a_case_for_each_node() -> None:
    assert cases(sizes=("1G",), scopes=("all", "intra", "inter")) == [
        "all_reduce 1 GiB",
        "all_reduce 1 GiB, node0 alone",
        "all_reduce 1 GiB, node1 alone",
        "all_reduce 1 GiB, one GPU per node",
    ]
    assert cases(sizes=("1G",), gpus_per_node=(1, 8)) == [
        "all_reduce 1 GiB, 1 GPU per node",
        "all_reduce 1 GiB, 8 GPUs per node",
    ]


def test_each_scope_has_its_hostfile_and_its_ranks_are_counted() -> None:
    plan = planned(type="nccl-tests", sizes=("1M",), scopes=("intra", "inter", "all"))
    files = plan.nodes[0].files
    assert [files[f"{FOLDER}/hostfile{which}"] for which in ("", "-1", "-2", "-3")] == [
        "10.213.1.10 slots=8\n10.213.1.11 slots=8\n",
        "10.213.1.10 slots=8\n",
        "10.213.1.11 slots=8\n",
        "10.213.1.10 slots=1\n10.213.1.11 slots=1\n",
    ]
    flags = "all_reduce_perf -b 1M -e 1M -f 2 -g 1 -n 20 -w 5 -c 1 || exit"
    assert calls(plan) == [
        f"gpuctl_ranks_1 bash <run>/rank.sh 1 8 {flags}",
        f"gpuctl_ranks_2 bash <run>/rank.sh 2 8 {flags}",
        f"gpuctl_ranks_3 bash <run>/rank.sh 3 2 {flags}",
        f"gpuctl_ranks bash <run>/rank.sh 4 all {flags}",
    ]
    hosts = f"{FOLDER}/hostfile-3"
    assert (
        f"OMPI_MCA_orte_default_hostfile={hosts} PRTE_MCA_prte_default_hostfile={hosts}"
        f' "$gpuctl_mpirun" "${{gpuctl_agent[@]}}" --allow-run-as-root --hostfile {hosts} -np 2'
    ) in plan.nodes[0].script
    # The supervisor counts ranks only where all of them start.
    assert [node.processes for node in plan.nodes] == [8, 8]
    alone = planned(type="nccl-tests", scopes=("intra",))
    assert [node.processes for node in alone.nodes] == [0, 0]


@pytest.mark.parametrize("implementation", ["mpich", "intel"])
def test_hydra_gets_the_hostfile_of_the_scope(implementation: str) -> None:
    fields: dict[str, Any] = {"implementation": implementation, "scopes": ("inter",)}
    plan = planned(type="nccl-tests", **fields)
    assert f"-f {FOLDER}/hostfile-1 -n 2 -ppn 1 " in plan.nodes[0].script
    hosts = plan.nodes[0].files[f"{FOLDER}/hostfile-1"]
    assert hosts == "10.213.1.10:1\n10.213.1.11:1\n"


def test_all_gpus_by_number_are_all_ranks() -> None:
    plan = planned(type="nccl-tests", sizes=("8",), gpus_per_node=(4, 8))
    assert [line.split()[0] for line in calls(plan)] == ["gpuctl_ranks_1", "gpuctl_ranks"]
    assert plan.nodes[0].files[f"{FOLDER}/hostfile-1"].splitlines()[1] == "10.213.1.11 slots=4"


def test_a_case_has_its_variables_type_and_reduction() -> None:
    fields: dict[str, Any] = {"dtypes": ("half",), "redops": ("max",), "sizes": ("64K",)}
    plan = planned(type="nccl-tests", sweep={"NCCL_ALGO": ("Ring", "a b")}, **fields)
    flags = "all_reduce_perf -b 64K -e 64K -f 2 -g 1 -n 20 -w 5 -c 1 -d half -o max || exit"
    assert calls(plan) == [
        f"gpuctl_ranks bash <run>/rank.sh 1 all NCCL_ALGO=Ring {flags}",
        f"gpuctl_ranks bash <run>/rank.sh 2 all 'NCCL_ALGO=a b' {flags}",
    ]
    assert (
        "echo '# gpuctl: case 2 of 2: all_reduce 64 KiB, half, max, NCCL_ALGO=a b'\n"
        in plan.nodes[0].script
    )


def announced(number: int, time: float, rank: int = 0, stream: Stream = "stdout") -> Output:
    return Output(rank, stream, f"# gpuctl: case {number} of 3: x", time=time)


def test_the_rest_is_estimated_from_the_cases_that_ended() -> None:
    plan = planned(type="nccl-tests", sizes=("1M", "2M", "4M"))
    reader = OutputReader(plan)

    def started(output: Output) -> list[Event]:
        return [event for event in reader.read(output) if isinstance(event, CaseStarted)]

    assert started(announced(1, 100.0, rank=1)) == []
    assert started(announced(1, 100.0, stream="stderr")) == []
    title = "all_reduce {} MiB"
    assert started(announced(1, 100.0)) == [CaseStarted(1, 3, title.format(1), None)]
    assert started(replace(announced(1, 110.0), text="# nThread")) == []
    assert started(announced(2, 130.0)) == [CaseStarted(2, 3, title.format(2), 60.0)]
    assert started(announced(3, 170.0)) == [CaseStarted(3, 3, title.format(4), 35.0)]
    assert started(announced(4, 170.0)) == []
    reader = OutputReader(replace(plan, sweep=None))
    assert started(announced(1, 0.0)) == []


def parsed(*more: Event, plan: LaunchPlan | None = None) -> TablesOfOutput:
    """The tables of two cases, with wrong names in the first one's text."""
    plan = plan or planned(
        type="nccl-tests", collectives=("all_reduce", "all_gather"), max_bytes="32"
    )
    parser = TablesOfOutput(plan)
    rows = [row(8), row(16), row(32)]
    for number in (1, 2):
        parser.read(out(f"# gpuctl: case {number} of 2: x"))
        for line in table(*rows)[1:]:
            parser.read(out(line))
    for event in more:
        parser.read(event)
    return parser


def test_a_table_has_its_case() -> None:
    facts = [table.facts for table in parsed().tables]
    assert [one.case.title for one in facts if one.case] == [
        "all_reduce 8 B to 32 B",
        "all_gather 8 B to 32 B",
    ]
    assert [one.collective for one in facts] == ["all_reduce", "all_gather"]


def test_json_from_another_node_belongs_to_its_case() -> None:
    kept = {**document(), "args": ["/opt/all_gather_perf"]}
    parser = parsed(TableWritten(time=1, rank=1, case=2, document=kept))
    assert [table.facts.from_json for table in parser.tables] == [False, True]


def test_a_verdict_belongs_to_the_tables_of_its_cases() -> None:
    plan = planned(
        type="nccl-tests",
        collectives=("all_reduce", "all_gather"),
        max_bytes="32",
        expect={"all_gather": {"busbw": ">= 2", "at": "32"}},
    )
    first, second = (table.facts.gates for table in parsed(plan=plan).tables)
    assert first == ()
    (verdict,) = second
    assert (verdict.passed, verdict.text) == (
        False,
        "gate missed: all_gather 32 B: busbw 0.04 GB/s, expected >= 2 GB/s (run file)",
    )


def test_a_sweep_survives_json() -> None:
    sweep = planned(type="nccl-tests", sweep={"A": ("1",)}).sweep
    assert sweep is not None
    assert from_json(Sweep, json.loads(json.dumps(to_json(sweep)))) == sweep


def test_a_stored_case_has_all_that_is_usual_and_left_out() -> None:
    usual = {"number": 1, "title": "t", "collective": "reduce", "min_bytes": 8, "max_bytes": 16}
    case = from_json(Case, usual)
    assert to_json(case) == usual | {
        "dtype": "", "redop": "", "scope": "all", "node": "", "gpus_per_node": 0, "variables": {},
        "repetition": 1,
    }  # fmt: skip
    assert case.program == "reduce_perf"


@pytest.mark.parametrize(
    ("size", "words", "flag"),
    [
        (0, "0 B", "0"),
        (8, "8 B", "8"),
        (1536, "1536 B", "1536"),
        (64 << 10, "64 KiB", "64K"),
        (3 << 20, "3 MiB", "3M"),
        (8 << 30, "8 GiB", "8G"),
    ],
)
def test_a_size_is_in_the_largest_unit_that_is_exact(size: int, words: str, flag: str) -> None:
    assert (binary_size(size), size_flag(size)) == (words, flag)
