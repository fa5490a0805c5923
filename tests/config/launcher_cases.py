"""What people read when commands call the launcher of their type: cases of test_complaints.py."""

HINT = (
    "write only the program that it starts (`python train.py`) and its options as fields of the run"
    " file, or use `type: task`"
)


def _case(kind: str, command: str, launcher: str, row: int = 0) -> tuple[str, list[str]]:
    lines = "".join(f"    {line}\n" for line in command.split("\n"))
    text = f"type: {kind}\nname: hello\ncommands:\n  - 'true'\n  - |\n{lines}"
    expected = f"E249 'commands[1]' calls {launcher}, which type {kind} calls itself; {HINT}"
    return text, [f"{6 + row}:5: {expected}"]


LAUNCHER_CASES: list[tuple[str, list[str]]] = [
    _case("mpi", "mpirun -np 4 ./train", "mpirun"),
    _case("mpi", "cd /data && mpirun -np 4 ./train", "mpirun"),
    _case("mpi", "if [ -e x ]; then OMP_NUM_THREADS=1 mpirun ./train; fi", "mpirun"),
    _case("mpi", "cd /root\n/opt/amazon/openmpi/bin/mpirun ./train", "mpirun", 1),
    _case("mpi", "A=1 exec mpiexec ./train", "mpiexec"),
    _case("mpi", "mpiexec.hydra ./train", "mpiexec.hydra"),
    _case("mpi", "prterun ./train", "prterun"),
    _case("torchrun", "set -e\n\nexport A=1\ntorchrun train.py", "torchrun", 3),
    _case("torchrun", "env A=1 torchrun train.py", "torchrun"),
    _case("torchrun", "time uv run torchrun train.py", "torchrun"),
    _case("torchrun", "(cd x; nohup torchrun train.py)", "torchrun"),
    _case("torchrun", "python -m torch.distributed.run x", "python -m torch.distributed.run"),
    _case("torchrun", "python3  -m torch.distributed.run x", "python3 -m torch.distributed.run"),
    _case(
        "torchrun",
        "python3.11 -u -m torch.distributed.launch x",
        "python3.11 -u -m torch.distributed.launch",
    ),
    _case("horovod", "horovodrun python3 train.py", "horovodrun"),
    _case("deepspeed", "deepspeed train.py", "deepspeed"),
    _case("ray", "ray start --head", "ray start"),
    (
        "type: torchrun\nname: hello\ncommands: [python train.py, torchrun train.py]\n",
        [f"3:29: E249 'commands[1]' calls torchrun, which type torchrun calls itself; {HINT}"],
    ),
    (
        "type: mpi\nname: hello\nnodes: 2\ncommands: [./train]\nroles:\n"
        "  launcher: {}\n  worker:\n    commands:\n      - mpirun x\n",
        [f"9:9: E249 'roles.worker.commands[0]' calls mpirun, which type mpi calls itself; {HINT}"],
    ),
]
OTHER_COMMANDS = [
    ("task", "mpirun ./train"),
    ("task", "torchrun train.py"),
    ("mpi", "echo mpirun"),
    ("mpi", 'echo "$(mpirun --version)"'),
    ("mpi", "./mpirun.sh"),
    ("mpi", "mpirun_rsh_is_another"),
    ("torchrun", "# torchrun train.py\npython train.py"),
    ("torchrun", "python -m torch.distributed.checkpoint x"),
    ("ray", "ray job submit -- python3 train.py"),
]
"""Commands that call no launcher, and the type of their run."""
