"""`type: nccl-tests`: one mpirun per case (engine/plan/cases.py), one after the other.

The head's script announces every case with a line on stdout, in front of the case's table: the
supervisor reads from it which table is whose (engine/agent/judge/tables.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from config.run.run_file import NcclTests
from engine.contract.plan import Case
from engine.contract.table import CASE_MARK
from engine.plan.cases import list_cases, size_flag
from engine.plan.modes.job import Job, Launch
from engine.plan.modes.mpirun import Layout, mpirun_launch, rank_prelude, rank_slots
from engine.plan.script import quote_words

FOLDERS = ("/root/nccl-tests/build", "/opt/nccl-tests/build", "/usr/local/cuda*/efa/test-cuda*")
"""Folders of the programs in images that do not have them on PATH: dstack's image, AWS's container
images, the Deep Learning AMIs (awsome-distributed-ai, nccl-tests, 2026-11-20)."""

FIND_PROGRAM = f"""\
gpuctl_find() {{
  local program
  for program in "$(command -v "$1")" {" ".join(f'{folder}/"$1"' for folder in FOLDERS)}; do
    if [ -x "$program" ]; then echo "$program"; return; fi
  done
  echo "gpuctl: $GPUCTL_NODE_NAME has no $1: not on PATH, nor in {", ".join(FOLDERS)}; \
install nccl-tests in the image or on the nodes" >&2
  return 127
}}
"""
"""The shell function `gpuctl_find NAME`, which prints the path of a program of nccl-tests."""

# The first rank also writes its results as JSON if the program has -J (2.17.3 and later). The
# worker sends the file to the head, without the environment in it (agent/node/outputs.py).
# The options are asked for outside the MPI job: a program that calls MPI_Init before it reads its
# options would wait there for the other ranks.
_JSON = """\
gpuctl_json=()
gpuctl_help() {{
  (unset ${{!OMPI_*}} ${{!PMI_*}} ${{!PMIX_*}} ${{!PRTE_*}}; timeout 10 "$gpuctl_program" -h 2>&1)
}}
if [ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK-0}}}}" = 0 ] \\
  && [[ "$(gpuctl_help)" = *output_file* ]]; then
  gpuctl_json=(-J {folder}/nccl-tests-"$gpuctl_case"-"$1".json)
fi
"""


# A rank is called with the number of its case, ALL or the number of ranks, variables, the program
# and its flags. If all ranks start, the supervisor compares their number with the plan; it cannot
# compare that of a part of them, so each rank does.
_RANK = """\
gpuctl_case=$1
if [ "$2" = {all} ]; then
  {report}\
elif [ "$2" != "${{OMPI_COMM_WORLD_SIZE:-${{PMI_SIZE-1}}}}" ]; then
  echo "gpuctl: the launcher started ${{OMPI_COMM_WORLD_SIZE:-${{PMI_SIZE-1}}}} ranks, \
$2 were planned" >&2
  exit 1
fi
shift 2
while [[ "$1" = *=* ]]; do
  export "$1"
  shift
done
"""
_ALL = "all"


def launch(job: Job[NcclTests]) -> Launch:
    """Return the launch with one GPU per rank; the head first checks that all programs exist."""
    slots = rank_slots(job)
    cases = list_cases(job.run, [node.name for node in job.nodes if node.private_ip in slots])
    layouts = _layouts(job, cases, slots)
    look = "".join(
        f"{quote_words('gpuctl_find', program)} >/dev/null || exit\n"
        for program in dict.fromkeys(case.program for case in cases)
    )
    calls = "".join(
        _call(job, case, layouts[_place(case)], f"{case.number} of {len(cases)}") for case in cases
    )
    rank = (
        _RANK.format(all=_ALL, report=rank_prelude(job))
        + FIND_PROGRAM
        + 'gpuctl_program=$(gpuctl_find "$1") || exit\n'
        + _JSON.format(folder=job.paths.folder)
        + 'shift\nexec "$gpuctl_program" "$@" "${gpuctl_json[@]}"\n'
    )
    needed = list({layout.number: layout for layout in layouts.values()}.values())
    base = mpirun_launch(job, FIND_PROGRAM + look + calls, [rank] * len(job.nodes), needed)
    return replace(base, cases=cases)


_Place = tuple[str, str, int]


def _place(case: Case) -> _Place:
    return case.scope, case.node, case.gpus_per_node


def _layouts(
    job: Job[NcclTests], cases: Sequence[Case], slots: Mapping[str, int]
) -> dict[_Place, Layout]:
    """Return the layout of every scope, node and number of GPUs that the cases have."""
    addresses = {node.name: node.private_ip for node in job.nodes}
    layouts: dict[_Place, Layout] = {}
    for case in cases:
        per_node = case.gpus_per_node or (1 if case.scope == "inter" else 0)
        where = [addresses[case.node]] if case.node else list(slots)
        ranks = {address: per_node or slots[address] for address in where}
        layout = Layout(ranks, 0 if ranks == slots else len(layouts) + 1)
        layouts.setdefault(_place(case), layout)
    return layouts


def _call(job: Job[NcclTests], case: Case, layout: Layout, number: str) -> str:
    """Return the script lines that announce a case and run it."""
    run = job.run
    size = str(sum(layout.slots.values())) if layout.number else _ALL
    words = [
        *(f"{name}={value}" for name, value in case.variables.items()),
        case.program,
        "-b",
        size_flag(case.min_bytes),
        "-e",
        size_flag(case.max_bytes),
        "-f",
        str(run.factor),
        "-g",
        "1",
        "-n",
        str(run.iterations),
        "-w",
        str(run.warmup),
        "-c",
        "1" if run.check else "0",
        *(("-d", case.dtype) if case.dtype else ()),
        *(("-o", case.redop) if case.redop else ()),
    ]
    announce = quote_words("echo", f"{CASE_MARK}{number}: {case.title}")
    script = job.paths.rank_script
    ranks = quote_words(layout.function, "bash", script, str(case.number), size, *words)
    return f"{announce}\n{ranks} || exit\n"
