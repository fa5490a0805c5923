"""srun and the start of a batch script, with real processes on this machine."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.engine.agent.slurm.jobs import SlurmJob, wait_for

pytestmark = pytest.mark.slow

EIGHT = {"SLURM_NTASKS_PER_NODE": "2"}


def test_each_task_has_its_numbers_and_its_node(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, environment=EIGHT)
    names = "$SLURM_PROCID/$SLURM_NTASKS local $SLURM_LOCALID node $SLURM_NODEID $GPUCTL_NODE_NAME"
    ended = job.run(f"srun -l bash -c 'echo {names} $SLURM_STEP_TASKS_PER_NODE $SLURM_STEP_ID'")
    assert ended.status == 0
    assert sorted(ended.stdout) == [
        "0: 0/4 local 0 node 0 10.0.0.1 2(x2) 0",
        "1: 1/4 local 1 node 0 10.0.0.1 2(x2) 0",
        "2: 2/4 local 0 node 1 10.0.0.2 2(x2) 0",
        "3: 3/4 local 1 node 1 10.0.0.2 2(x2) 0",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", ["0 1", "1 1", "2 2", "3 2"]),
        ("-n3", ["0 1", "1 1", "2 2"]),
        ("-n1", ["0 1"]),
        ("-N1 -n1 -w 10.0.0.2", ["0 2"]),
        # -N alone makes new tasks of the job's --ntasks-per-node (src/srun/opt.c)
        ("-N1", ["0 1", "1 1"]),
        ("--nodes=2 --ntasks-per-node=1", ["0 1", "1 2"]),
        # without -N Slurm ignores it, and warns
        ("--ntasks-per-node=1", ["0 1", "1 1", "2 2", "3 2"]),
        ("-m cyclic", ["0 1", "1 2", "2 1", "3 2"]),
        ("-r1 -N1 -n1", ["0 2"]),
        ("-N1 -n2 --exclude=10.0.0.1", ["0 2", "1 2"]),
    ],
)
def test_tasks_are_where_slurm_puts_them(tmp_path: Path, options: str, expected: list[str]) -> None:
    job = SlurmJob(tmp_path, environment=EIGHT)
    ended = job.run(f"srun {options} bash -c 'echo $SLURM_PROCID ${{GPUCTL_NODE_NAME##*.}}'")
    assert sorted(ended.stdout) == expected


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("srun bash -c 'exit $((3 + SLURM_PROCID))'", 6),  # the highest
        ("srun bash -c '[ $SLURM_PROCID = 1 ] && kill -USR1 $$; exit 99'", 128 + signal.SIGUSR1),
        ("srun -n1 nothing-of-this-name 2> /dev/null", 127),
        ("srun", 1),
        ("srun --no-such-option true", 1),
        ("srun -N3 true", 1),
        ("srun -w 10.9.9.9 true", 1),
        ("srun --gpus=1 true", 1),
    ],
)
def test_exit_status_of_a_step(tmp_path: Path, command: str, status: int) -> None:
    ended = SlurmJob(tmp_path, environment=EIGHT).run(command)
    assert ended.status == status


def test_kill_on_bad_exit_ends_the_other_tasks(tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = SlurmJob(tmp_path).run(
        "srun -K bash -c '[ $SLURM_PROCID = 0 ] && exit 4; sleep 50'; echo $?"
    )
    assert time.monotonic() - begin < 20
    # those that srun ended count too, as in launch.c
    assert ended.stdout == [str(128 + signal.SIGTERM)]
    assert "srun: error: 10.0.0.1: task 0: Exited with exit code 4" in ended.stderr


def test_without_it_the_others_go_on(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path).run(
        "srun bash -c '[ $SLURM_PROCID = 0 ] && exit 4; sleep 1; echo done'; echo $?"
    )
    assert ended.stdout == ["done", "4"]


def test_parallel_steps_have_different_gpus_and_wait_for_them(tmp_path: Path) -> None:
    step = "srun -N1 -n1 --exact --gpus=1 bash -c 'echo $CUDA_VISIBLE_DEVICES; sleep 1'"
    ended = SlurmJob(tmp_path, nodes=1, gpus=2).run(f"{step} & {step} & {step} & wait")
    assert sorted(ended.stdout[:2]) == ["0", "1"]
    assert ended.stdout[2] in ("0", "1")


def test_a_step_waits_for_another_unless_it_overlaps(tmp_path: Path) -> None:
    first = "srun -n1 bash -c 'sleep 2; echo first' & sleep 0.7"
    second = "srun -n1 -N1 -w 10.0.0.1 {} echo second; wait"
    job = SlurmJob(tmp_path)
    assert job.run(f"{first}; {second.format('')}").stdout == ["first", "second"]
    assert job.run(f"{first}; {second.format('--overlap')}").stdout == ["second", "first"]


def test_gpus_of_a_task(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, nodes=1, gpus=8, environment={"SLURM_NTASKS_PER_NODE": "2"})
    ended = job.run(
        "echo job $SLURM_JOB_GPUS ${CUDA_VISIBLE_DEVICES-all}\n"
        "srun --gpus-per-task=2 bash -c 'echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES' | sort\n"
        "srun bash -c 'echo $SLURM_LOCALID ${CUDA_VISIBLE_DEVICES-all}' | sort\n"
        "srun --gpu-bind=single:1 bash -c 'echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES' | sort\n"
        "srun --gres=gpu:3 -n1 bash -c 'echo $SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES'"
    )
    assert ended.stdout == [
        "job 0,1,2,3,4,5,6,7 all", "0 0,1", "1 2,3", "0 all", "1 all", "0 0", "1 1", "3 0,1,2",
    ]  # fmt: skip


def test_a_job_that_asks_for_fewer_gpus_sees_the_first(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, nodes=1, gpus=8, settings={"gpus_per_node": 2})
    ended = job.run(
        "echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE; srun printenv CUDA_VISIBLE_DEVICES"
    )
    assert ended.stdout == ["0,1 2", "0,1"]


def test_stdin_goes_to_all_tasks_or_to_one(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path)
    assert sorted(job.run("echo hello | srun -l cat").stdout) == ["0: hello", "1: hello"]
    assert job.run("echo hello | srun -l --input=1 cat").stdout == ["1: hello"]
    assert job.run("srun cat; echo over").stdout == ["over"]


def test_output_goes_to_files_by_pattern(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, settings={"output": "logs/%x-%j.out", "error": "%8j.err"})
    ended = job.run(
        "srun -o out/%j.%s-%2t.txt bash -c 'echo $SLURM_PROCID'\necho said\necho wrong >&2"
    )
    texts = {
        str(path.relative_to(ended.folder)): path.read_text()
        for path in ended.folder.rglob("*")
        if path.is_file()
    }
    assert texts == {
        "out/1000042.0-00.txt": "0\n",
        "out/1000042.0-01.txt": "1\n",
        "logs/train-1000042.out": "said\n",
        "01000042.err": "wrong\n",
    }
    assert ended.stdout == ["said"]  # the run's output has it too


def test_lines_stay_whole(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, environment={"SLURM_NTASKS_PER_NODE": "4"})
    line = "x" * 5000
    ended = job.run(f"srun bash -c 'for i in 1 2 3 4 5; do echo $SLURM_PROCID {line}; done'")
    assert sorted(set(ended.stdout)) == [f"{number} {line}" for number in range(8)]
    assert len(ended.stdout) == 40


def test_export_chooses_the_variables_of_a_step(tmp_path: Path) -> None:
    show = "bash -c 'echo ${A-no} ${B-no} ${SLURM_JOB_ID}'"
    ended = SlurmJob(tmp_path).run(
        f"export A=1\nsrun -n1 {show}\nsrun -n1 --export=ALL,B=2 {show}\n"
        f"srun -n1 --export=B=2 {show}\nsrun -n1 --export=NONE {show}"
    )
    assert ended.stdout == ["1 no 1000042", "1 2 1000042", "no 2 1000042", "no no 1000042"]


def test_a_step_without_the_environment_lacks_what_travelled(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, settings={"travelled": ["GPUCTL_NODE_NAME"]})
    show = "bash -c 'echo ${GPUCTL_NODE_NAME-no}'"
    ended = job.run(f"srun -n1 --export=NONE {show}\nsrun -n1 {show}")
    assert ended.stdout == ["no", "10.0.0.1"]


def test_a_login_shell_finds_srun(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path).run("exec bash -lc 'srun -n1 echo $0; module load x'")
    assert ended.stdout == ["bash"]
    assert ended.stderr[-1].startswith("gpuctl: module load x: ")


def test_signals_are_passed_on_to_the_tasks(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path).run(
        'srun bash -c \'trap "echo got; exit 0" USR1; touch up.$SLURM_PROCID;'
        " while :; do sleep 0.1; done' &\n"
        "while [ ! -e up.0 ] || [ ! -e up.1 ]; do sleep 0.1; done\nkill -USR1 $!\nwait $!"
    )
    assert (ended.status, ended.stdout) == (0, ["got", "got"])


def test_the_end_of_srun_ends_its_tasks(tmp_path: Path) -> None:
    process = SlurmJob(tmp_path).start(
        "srun -n1 bash -c 'echo $$ > pid.part; mv pid.part pid; exec sleep 100' & echo $! > srun\n"
        "wait"
    )
    wait_for(tmp_path / "work" / "pid")
    pid = int((tmp_path / "work" / "pid").read_text())
    os.kill(int((tmp_path / "work" / "srun").read_text()), signal.SIGKILL)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the task lives on"
        time.sleep(0.1)
    process.communicate(timeout=20)


@pytest.mark.parametrize(("to", "expected"), [("script", ["script"]), ("steps", ["step"])])
def test_signal_before_the_limit(tmp_path: Path, to: str, expected: list[str]) -> None:
    settings = {"time_s": 60, "signal": "USR1", "signal_to": to, "signal_s": 58}
    ended = SlurmJob(tmp_path, nodes=1, settings=settings).run(
        "trap 'echo script; exit 0' USR1\n"
        "srun bash -c 'trap \"echo step; exit 0\" USR1; for i in {1..70}; do sleep 0.1; done' &\n"
        "wait"
    )
    assert ended.stdout == expected


def test_a_failed_step_that_the_script_forgives_is_warned_of(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path)
    ended = job.run("srun -n1 bash -c 'exit 3' | cat")
    assert ended.status == 0
    warning = (
        "gpuctl: WARNING: step 0 failed with 3, and the script ended with 0: srun bash -c exit 3"
    )
    assert warning in ended.stderr
    assert "WARNING" not in " ".join(job.run("srun -n1 bash -c 'exit 3'").stderr)
    assert "WARNING" not in " ".join(job.run("srun -n1 true").stderr)


def test_scontrol(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path, nodes=3).run(
        "scontrol show hostnames | head -n1\nscontrol show hostnames 'tux[08-10,3]-x,a'\n"
        "scontrol show hostname $SLURM_JOB_NODELIST | wc -l\nscontrol requeue 1 || echo refused"
    )
    assert ended.stdout == [
        "10.0.0.1", "tux08-x", "tux09-x", "tux10-x", "tux3-x", "a", "3", "refused",
    ]  # fmt: skip


def test_variables_of_the_script(tmp_path: Path) -> None:
    job = SlurmJob(tmp_path, nodes=3, environment={"SLURM_NTASKS": "7"})
    names = "JOB_ID JOB_NUM_NODES NNODES NTASKS NPROCS TASKS_PER_NODE PROCID LOCALID NODEID"
    ended = job.run(
        f"for name in {names}; do n=SLURM_$name; echo $name=${{!n}}; done\n"
        "[ $PWD = $SLURM_SUBMIT_DIR ] && basename $0"
    )
    assert ended.stdout == [
        "JOB_ID=1000042", "JOB_NUM_NODES=3", "NNODES=3", "NTASKS=7", "NPROCS=7",
        "TASKS_PER_NODE=3,2(x2)", "PROCID=0", "LOCALID=0", "NODEID=0", "slurm_script",
    ]  # fmt: skip


def test_a_step_of_several_programs(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path, environment=EIGHT).run(
        "printf '0 echo master %%t\\n1-3 echo worker %%t %%o\\n' > programs\n"
        "srun -l --multi-prog programs | sort"
    )
    assert ended.stdout == ["0: master 0", "1: worker 1 0", "2: worker 2 1", "3: worker 3 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--pty", "--pty: a run has no terminal; `gpuctl ssh` opens one"),
        ("--mpi=pmix", "--mpi=pmix: gpuctl's srun starts no ranks of MPI: call mpirun in the"
         " script, which finds the job's nodes and tasks"),
        ("-m arbitrary", "--distribution is 'arbitrary': gpuctl has block, cyclic and plane=N"),
        ("--container-image=x", "--container-image: write #SBATCH --container-image: the run's"
         " image is the steps' too"),
    ],
)  # fmt: skip
def test_what_srun_cannot_do_is_refused(tmp_path: Path, options: str, message: str) -> None:
    ended = SlurmJob(tmp_path).run(f"srun {options} true")
    assert (ended.status, ended.stderr) == (1, [f"srun: error: {message}"])


def test_bindings_are_left_out_with_a_warning(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path, nodes=1).run("srun --cpu-bind=cores true; srun --cpu-bind=none true")
    assert ended.stderr == [
        "srun: warning: --cpu-bind has no effect: tasks may use all of their node"
    ]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--signal=USR1@60", "write #SBATCH --signal"),
        ("--ignore-signals=USR1", "tasks get the signals that srun gets"),
    ],
)
def test_an_option_about_signals_has_its_own_reason(
    tmp_path: Path, option: str, reason: str
) -> None:
    ended = SlurmJob(tmp_path, nodes=1).run(f"srun {option} true")
    name = option.partition("=")[0]
    assert ended.stderr == [f"srun: warning: {name} has no effect: {reason}"]


def test_a_file_for_every_node(tmp_path: Path) -> None:
    ended = SlurmJob(tmp_path).run(
        "echo data > a; chmod 750 a; sbcast a $PWD/b; cat b; stat -c %a b"
    )
    assert ended.stdout == ["data", "750"]
