"""A round of a bisect as a run: its run file, and the measurements in its output.

One mpirun per trial starts on the head, which prints the output of each trial as a whole when its
step is over: tables that run side by side stay apart. Each trial is announced as a case.
"""

from config.run.owned_variables import OPEN_MPI_AGENT
from config.run.run_file import Role, Task
from engine.agent.journal.lines import Line, WholeLines
from engine.analysis.bisect.rounds import LIMIT_S, Round, Trial
from engine.analysis.bisect.verdict import Measurement
from engine.contract.event import Event
from engine.contract.head_events import RunFinished, TableRead
from engine.contract.table import CASE_MARK
from engine.contract.worker_events import Output
from engine.plan.modes.mpirun import FIND_OPEN_MPI
from engine.plan.modes.nccl_tests import FIND_PROGRAM
from engine.plan.script import WAIT
from engine.record.result import Table, TableCollector

LEAST_BYTES = 64 * 1024
"""A size that also the lab's CPU stand-in measures, which skips large ones."""

NAME = "bisect"
_MARK = "gpuctl-bisect:"

# The agent that Open MPI 4 and 5 start their daemons with is that of the run, as in modes/mpirun.
# Each node is an application context of mpirun, because only their order decides where rank 0 is:
# Open MPI puts the node that mpirun runs on first in any list of hosts.
_PRELUDE = f"""\
mapfile -t address <<<"$GPUCTL_NODES_IPS"
slots=$((GPUCTL_GPUS_PER_NODE > 0 ? GPUCTL_GPUS_PER_NODE : 1))
export {" ".join(f'{name}="$GPUCTL_RUN_FOLDER/bin/ssh"' for name in OPEN_MPI_AGENT)}
{FIND_OPEN_MPI}{FIND_PROGRAM}
all_reduce=$(gpuctl_find all_reduce_perf) || exit
broadcast=$(gpuctl_find broadcast_perf) || exit
results=$(mktemp -d) || exit
trap 'rm -rf "$results"' EXIT
trial() {{
  local number=$1 program=$2 node contexts=()
  shift 2
  for node; do
    contexts+=(${{contexts:+:}} -H "${{address[node]}}:$slots" -np "$slots")
    contexts+=("$program" "${{words[@]}}")
  done
  timeout -k 5 {LIMIT_S} "$gpuctl_mpirun" --allow-run-as-root --bind-to none "${{contexts[@]}}" \\
    >"$results/$number" 2>&1
  echo "$?" >"$results/$number.status"
}}
show() {{
  for number; do
    echo "{CASE_MARK}$((number + 1)) of $trials: trial $number"
    cat "$results/$number"
    echo "{_MARK} end $number $(cat "$results/$number.status")"
  done
}}
"""


def run_file(a_round: Round, nodes: int, largest: int) -> Task:
    """Return the run of the round on `nodes` nodes, with messages of up to `largest` bytes.

    Findings about the network do not end it: a node that falls back to sockets is measured too.
    """
    run = Task(
        type="task",
        name=NAME,
        nodes=nodes,
        commands=(WAIT,),
        roles={"master": Role(commands=(_script(a_round, largest),))},
        startup_order="workers-first",
        stop_criteria="master-done",
        verify="warn",
    )
    return run.model_copy(update={"max_duration": a_round.most_seconds})  # files have text there


def _script(a_round: Round, largest: int) -> str:
    least = min(LEAST_BYTES, largest)
    factor = max(2, largest // least)
    trials = f"trials={len(a_round.trials)}\n"
    words = f"words=(-b {least} -e {largest} -f {factor} -g 1 -n 20 -w 5 -c 1)\n"
    numbers = iter(range(len(a_round.trials)))
    steps = []
    for step in a_round.steps:
        lanes, shown = [], []
        for lane in step:
            calls = [(next(numbers), trial) for trial in lane]
            shown += [str(number) for number, _ in calls]
            lanes.append("; ".join(_call(number, trial) for number, trial in calls))
        steps.append("".join(f"({lane}) &\n" for lane in lanes) + f"wait\nshow {' '.join(shown)}\n")
    return _PRELUDE + trials + words + "".join(steps)


def _call(number: int, trial: Trial) -> str:
    nodes = " ".join(map(str, trial.nodes))
    return f'trial {number} "${trial.collective}" {nodes}'


class RoundReader:
    """A reader of the measurements in a round's events."""

    def __init__(self, a_round: Round) -> None:
        self._trials = a_round.trials
        self._lines = WholeLines()
        self._tables = TableCollector()
        self._places: dict[int, int] = {}  # of the last table of each trial
        self._ended: list[tuple[int, int, str]] = []
        """The trials that have ended: number, status and last line."""
        self._last = ""

    def see(self, event: Event) -> None:
        """Read the event."""
        place = self._tables.feed(event)
        if isinstance(event, TableRead) and place is not None:
            self._places[event.case - 1] = place
        elif isinstance(event, Output):
            self._read(self._lines.feed(event))
        elif isinstance(event, RunFinished):
            self._read(self._lines.rest())

    def _read(self, lines: tuple[Line, ...]) -> None:
        for line in lines:
            if line.rank != 0 or line.stream != "stdout":
                continue
            mark, _, rest = line.text.partition(f"{_MARK} end ")
            if not mark and rest:
                number, status = map(int, rest.split())
                self._ended.append((number, status, self._last))
            elif line.text.startswith(CASE_MARK):
                self._last = ""
            else:
                self._last = line.text.strip() or self._last

    @property
    def measured(self) -> list[Measurement]:
        """The measurements of the trials that have ended."""
        return [self._measurement(*ended) for ended in self._ended]

    def _measurement(self, number: int, status: int, last: str) -> Measurement:
        trial, place = self._trials[number], self._places.get(number)
        table = None if place is None else self._tables.table(place)
        if status == 0 and table is not None and table.rows:
            return Measurement(trial=trial, gbps=_bus_bandwidth(table, trial))
        error = f"no result within {LIMIT_S} s" if status in (124, 137) else last
        return Measurement(trial=trial, gbps=0.0, error=error or f"exit code {status}")


def _bus_bandwidth(table: Table, trial: Trial) -> float:
    """Return the bus bandwidth of the table's last row in GB/s, of its better half.

    It is computed from the time, because nccl-tests prints two decimals (doc/PERFORMANCE.md of
    nccl-tests, 2026-11-22: all_reduce moves 2 (n - 1) / n times the data, broadcast once).
    """
    row = table.rows[-1]
    times = [half.time_us for half in (row.out_of_place, row.in_place) if half and half.time_us]
    if not times:
        return 0.0
    ranks = len(table.facts.ranks)
    factor = 2 * (ranks - 1) / ranks if trial.collective == "all_reduce" and ranks > 1 else 1.0
    return row.size / min(times) / 1e3 * factor
