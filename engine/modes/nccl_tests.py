"""`type: nccl-tests`: one mpirun per collective of the run file, one after the other."""

from config.run.run_file import NcclTests
from engine.modes.job import Job, Launch
from engine.modes.mpirun import mpirun_launch, rank_prelude
from engine.places import rank_script_path, run_folder
from engine.script import quote_words

FOLDERS = ("/root/nccl-tests/build", "/opt/nccl-tests/build", "/usr/local/cuda*/efa/test-cuda*")
"""Folders of the programs in images that do not have them on PATH: dstack's image, AWS's container
images, the Deep Learning AMIs (awsome-distributed-ai, nccl-tests, 2026-11-20)."""

_FIND = f"""\
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

# The first rank also writes its results as JSON if the program has -J (2.17.3 and later). The
# worker sends the file to the head, without the environment in it (engine/agent/table_json.py).
# The options are asked for outside the MPI job: a program that calls MPI_Init before it reads its
# options would wait there for the other ranks.
_JSON = """\
gpuctl_json=()
gpuctl_help() {{
  (unset ${{!OMPI_*}} ${{!PMI_*}} ${{!PMIX_*}} ${{!PRTE_*}}; timeout 10 "$gpuctl_program" -h 2>&1)
}}
if [ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK-0}}}}" = 0 ] \\
  && [[ "$(gpuctl_help)" = *output_file* ]]; then
  gpuctl_json=(-J {folder}/nccl-tests-"$1".json)
fi
"""


def launch(job: Job[NcclTests]) -> Launch:
    """Return the launch with one GPU per rank; the head first checks that all programs exist."""
    programs = [f"{collective}_perf" for collective in job.run.collectives]
    look = "".join(
        f"{quote_words('gpuctl_find', program)} >/dev/null || exit\n" for program in programs
    )
    ranks = "".join(
        quote_words("gpuctl_ranks", "bash", rank_script_path(job.run_id), program) + " || exit\n"
        for program in programs
    )
    run = job.run
    words = [
        *("-b", run.min_bytes, "-e", run.max_bytes, "-f", str(run.factor), "-g", "1"),
        *("-n", str(run.iterations), "-w", str(run.warmup), "-c", "1" if run.check else "0"),
    ]
    rank = (
        f"{rank_prelude(job)}{_FIND}"
        f'gpuctl_program=$(gpuctl_find "$1") || exit\n{_JSON.format(folder=run_folder(job.run_id))}'
        f'exec "$gpuctl_program" {quote_words(*words)} "${{gpuctl_json[@]}}"\n'
    )
    return mpirun_launch(job, _FIND + look + ranks, [rank] * len(job.nodes))
