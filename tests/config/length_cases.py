"""What people read of what is empty or too long: part of the cases of test_complaints.py."""

from tests.config.run_cases import TASK

CLUSTER = "name: demo\nnodes: 2\ninstance_type: p4d.24xlarge\n"

LENGTH_CASES: list[tuple[str, list[str]]] = [
    (
        CLUSTER + f"tags: {{'': a, {'k' * 129}: b, c: {'v' * 257}}}\n",
        [
            "4:8: E203 tags has an empty key; name it",
            f"4:15: E202 the key 'tags.{'k' * 39}…' has more than 128 characters; shorten it",
            "4:152: E202 'tags.c' has more than 256 characters; shorten it",
        ],
    ),
    (
        CLUSTER + "tags: {" + ", ".join(f"t{number}: x" for number in range(41)) + "}\n",
        ["4:7: E202 'tags' has more than 40 entries; shorten it"],
    ),
    (
        "type: mpi\nname: x\ncommands: []\nroles: {worker: {commands: ['']}, launcher: {}}\n"
        "mpirun_args: [" + "-v, " * 101 + "]\n",
        [
            "3:11: E202 'commands' is empty; write at least one entry or letter",
            "4:29: E202 'roles.worker.commands[0]' is empty; write at least one entry or letter",
            "5:14: E202 'mpirun_args' has more than 100 entries; shorten it",
        ],
    ),
    # A list with a bad entry is not empty, though pydantic counts the good ones.
    (
        TASK.replace("hostname", "3"),
        ["3:12: E103 'commands[0]' is the number 3, must be text; quote it: '3'"],
    ),
]
