"""What people read when a command is not bash: part of the cases of test_complaints.py."""

from tests.config.run_cases import TASK

HEAD = "type: task\nname: hello\n"
CLOSE = "close it in the same entry, which bash reads by itself (`- |` for several lines)"

COMMAND_CASES: list[tuple[str, list[str]]] = [
    *(
        # YAML 1.1 has more line ends than the text seems to have; each counts as a line.
        (
            f"# a comment{end}\n{HEAD}commands:\n  - |\n\n    ls\n    '\n",
            [f"{line}:5: E248 'commands[0]' has no ' that closes; {CLOSE}"],
        )
        for end, line in (("\u2028", 9), ("\u2029", 9), ("\x85", 9), ("\r", 8))
    ),
    (
        HEAD + "commands:\n  - |\n    cat >x.py <<EOF\n    print(1)\n      EOF\n    python x.py\n",
        [
            "5:5: E248 'commands[0]' has a here-document without its end: EOF has spaces before or"
            " after it; write EOF alone, in the column of the entry's first line"
        ],
    ),
    (
        HEAD + "commands:\n  - hostname\n  - cat >x.py <<EOF\n  - print(1)\n  - EOF\n",
        [
            "5:5: E248 'commands[1]' has a here-document without its end: no line is EOF alone;"
            " write EOF alone on a line of the same entry (`- |` for several lines)",
            "6:5: E248 'commands[2]' is not bash: syntax error near unexpected token `1'; correct"
            " it: `bash -n FILE` checks a file with these lines",
        ],
    ),
    (
        HEAD + "commands:\n  - echo 'it\n  - |\n    ls\n\n    echo \"a\n    ls\n",
        [
            f"4:5: E248 'commands[0]' has no ' that closes; {CLOSE}",
            f"8:5: E248 'commands[1]' has no \" that closes; {CLOSE}",
        ],
    ),
    (
        HEAD + "commands:\n  - for i in 1 2; do\n  - echo $i\n  - done\n",
        [
            "4:5: E248 'commands[0]' ends within a command: an if, for, case or { is open;"
            f" {CLOSE}",
            "6:5: E248 'commands[2]' is not bash: syntax error near unexpected token `done';"
            " correct it: `bash -n FILE` checks a file with these lines",
        ],
    ),
    (
        # In quotes and folded text YAML's rows are not bash's.
        HEAD + 'commands: ["true", "ls\\n)\\n"]\nroles: {worker: {commands: [\'[[ a == ]]\']}}\n',
        [
            "3:25: E248 'commands[1]' is not bash: syntax error near unexpected token `)';"
            " correct it: `bash -n FILE` checks a file with these lines",
            "4:30: E248 'roles.worker.commands[0]' is not bash: unexpected argument `]]' to"
            " conditional binary operator; correct it: `bash -n FILE` checks a file with these"
            " lines",
        ],
    ),
    (
        TASK + "ready: {command: 'test -f $(ls'}\nnotify: [{command: 'cat >/x; ('}]\n",
        [
            f"4:19: E248 'ready.command' has no ) that closes; {CLOSE}",
            "5:21: E248 'notify[0].command' ends within a command: an if, for, case or { is open;"
            f" {CLOSE}",
        ],
    ),
    (
        "name: demo\nnodes: 2\ninstance_type: p4d.24xlarge\nsetup:\n  commands:\n"
        "    - |\n      cat >/etc/x <<EOF\n      a\n",
        [
            "7:7: E248 'setup.commands[0]' has a here-document without its end: no line is EOF"
            " alone; write EOF alone on a line of the same entry (`- |` for several lines)"
        ],
    ),
]

CONDITION = (
    "has a [[ … ]] in which an operand is missing: bash ends there, with 0; write what is tested,"
    ' in quotes if it may be empty: `[[ -n "$NAME" ]]`'
)
APART = (
    "ends with \\, but the next entry is apart; write both as one entry (`- |` for several lines),"
    " or remove the \\"
)

COMMAND_CASES += [
    (
        HEAD
        + "commands:\n  - |\n    ls\n    if [[ -f a && ]]; then\n      ls\n    fi\n  - '[[ ]]'\n",
        [f"6:5: E248 'commands[0]' {CONDITION}", f"9:6: E248 'commands[1]' {CONDITION}"],
    ),
    (
        HEAD + "commands:\n  - |\n    ls\n    python train.py \\\n  - --lr 1\n",
        [f"6:5: E248 'commands[0]' {APART}"],
    ),
    (
        HEAD + "commands:\n  - 'ls \\\\'\n  - '# C:\\'\n  - echo \\\\\\\n  - ls \\\n",
        [f"6:5: E248 'commands[2]' {APART}"],
    ),
]

UNREAD = "in it, which stays as it is written: no shell reads it"

COMMAND_CASES += [
    (
        TASK + "env:\n  PATH: /opt/x:$PATH\n  LD_LIBRARY_PATH: '/opt/x:${LD_LIBRARY_PATH}'\n"
        "  HF_HOME: ~/cache\n  WORKERS: $(nproc)\n  PASS: pa$word\n",
        [
            f"5:3: W210 'env.PATH' has $PATH {UNREAD}; write ${{PATH}} for the value on the node",
            f"7:3: W210 'env.HF_HOME' has ~ {UNREAD}; write ${{HOME}} for the home folder on the"
            " node",
            f"8:3: W210 'env.WORKERS' has a command {UNREAD}; set it in 'commands': export"
            " WORKERS=$(…)",
        ],
    ),
    (
        TASK + "env: [A=1, 'B=x$HOME']\nroles: {worker: {env: {C: $A/b}}}\n",
        [
            f"4:12: W210 'env.B' has $HOME {UNREAD}; write ${{HOME}} for the value on the node",
            f"5:24: W210 'roles.worker.env.C' has $A {UNREAD}; write ${{A}} for the value on the"
            " node",
        ],
    ),
]

UNSET = "in it, which is not set yet: it is empty"

COMMAND_CASES += [
    (
        TASK + "env:\n  A: ${B:-x}\n  C: '`nproc`'\n  D: /a:~/b\n  E: $PWD/x\n  F: ${RANDOM}\n"
        "  G: $${B:-x}\n  H: a~b`c\n  I: ${B}\n",
        [
            f"5:3: W210 'env.A' has ${{B…}} {UNREAD}; set it in 'commands': export A=…",
            f"6:3: W210 'env.C' has a command {UNREAD}; set it in 'commands': export C=$(…)",
            f"7:3: W210 'env.D' has ~ {UNREAD}; write ${{HOME}} for the home folder on the node",
            f"8:3: W210 'env.E' has $PWD {UNREAD}; set it in 'commands': export E=…",
            f"9:3: W210 'env.F' has ${{RANDOM}} {UNSET}; set it in 'commands': export F=…",
        ],
    ),
    (
        "type: torchrun\nname: hello\ncommands: [ls]\nenv: {LOG: '${RANK}-${GPUCTL_NODE_RANK}'}\n",
        [f"4:7: W210 'env.LOG' has ${{RANK}} {UNSET}; set it in 'commands': export LOG=…"],
    ),
    (
        "type: mpi\nname: hello\ncommands: [ls]\nmpirun_args: [-x, 'PATH=/opt/x:$PATH', -x, A=1]\n",
        [
            f"4:19: W210 'mpirun_args[1]' has $PATH {UNREAD}; set the variable in 'env', which"
            " every rank gets: ${NAME} is its value there"
        ],
    ),
]

GOOD_COMMANDS = [
    "cat <<EOF\nx\nEOF",
    "cat <<-EOF\n\tx\n\tEOF",
    "x=$(cat <<EOF\nhi\nEOF)\necho $x",
    "shopt -s extglob\nrm -rf !(keep)",
    "shopt -s extglob\n[[ $a == !(b) && -n $c ]] && rm !(d)",
    "if !(grep -q a b); then echo; fi",
    "echo ${{ nodes[0].ip }}",
    "echo a \\",
    "case x in (a) ;; esac",
    "python3 - <<'END'\nif True:\n    print('it')\nEND",
    "# it's a comment",
]
"""Commands that bash reads, some of them with a warning."""
