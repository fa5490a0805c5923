"""What people read when a file is wrong: every code, with its exact line, column and words."""

from pathlib import Path

import pytest

from config.errors import InvalidFiles
from config.loading.codes import CODES
from config.loading.load import check, load_cluster, load_run
from config.run.run_file import Task
from tests.config.command_cases import CLOSE, COMMAND_CASES, GOOD_COMMANDS
from tests.config.hosts_cases import HOSTS_CASES
from tests.config.launcher_cases import LAUNCHER_CASES, OTHER_COMMANDS
from tests.config.length_cases import LENGTH_CASES
from tests.config.notify_cases import NOTIFY_CASES
from tests.config.run_cases import RUN_CASES
from tests.config.shape_cases import SHAPE_CASES
from tests.config.storage_cases import STORAGE_CASES
from tests.config.sweep_cases import SWEEP_CASES

CLUSTER = "name: demo\nnodes: 2\ninstance_type: p4d.24xlarge\n"
RUN = "type: task\nname: hello\ncommands: [hostname]\n"

CASES: list[tuple[str, list[str]]] = [
    (
        CLUSTER + "max_restarts: 1\ntags: 3\n",
        [
            "4:1: E101 unknown key 'max_restarts'; allowed here: name, nodes, instance_type,"
            " region, image, placement, capacity, network, instance_profile, storage, software,"
            " setup, lifetime,"
            " budget, tags",
            "5:7: E103 'tags' is the number 3, must be a mapping; write keys below it"
            " (NAME: value), or remove it",
        ],
    ),
    (
        "name: demo\nnodes: [1\n",
        [
            "3:1: E001 not YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow"
            " sequence, which began on line 2); check indentation, brackets and quotes here and on"
            " the line before"
        ],
    ),
    (
        CLUSTER + "network:\n\tcidr: 10.0.0.0/8\nstorage:\t{}\n",
        [
            "5:1: E002 a tab, where YAML allows spaces only; use spaces",
            "5:8: E205 'network.cidr' is '10.0.0.0/8', which is a /8; use a range from /16 to /24",
            "6:9: E002 a tab, where YAML allows spaces only; use spaces",
        ],
    ),
    (
        CLUSTER + "nodes: 3\n",
        ["4:1: E003 'nodes' is given twice, on lines 2 and 4; keep one of them"],
    ),
    ("name: de\x01mo\n", ["1:9: E004 YAML forbids the character U+0001; remove it"]),
    ("# nothing yet\n", ["1:1: E005 the file is empty; write a cluster or a run in it"]),
    (
        CLUSTER + "---\nname: other\n",
        ["4:1: E006 a second document begins; put one document into a file"],
    ),
    (
        CLUSTER + "region: !Ref us-east-1\n",
        ["4:9: E007 the tag !Ref means nothing to gpuctl; remove the tag"],
    ),
    (
        CLUSTER + "tags: &all\n  mine: *all\n",
        ["4:7: E008 an alias is within its own anchor; write it out"],
    ),
    (
        CLUSTER + "[a, b]: 1\n",
        ["4:1: E009 a key is not text; write a name before the colon"],
    ),
    (CLUSTER + "node: 2\n", ["4:1: E101 unknown key 'node'; did you mean 'nodes'?"]),
    (
        CLUSTER + "storage: {colour: red}\n",
        ["4:11: E101 unknown key 'colour'; allowed here: root, shared, buckets, scratch"],
    ),
    (
        CLUSTER + "lifetime: {}\n",
        [
            "4:11: E102 'lifetime.max' is missing; add it: All machines power off, and so are"
            " terminated, this long after boot: `8h`"
        ],
    ),
    (
        CLUSTER.replace("nodes: 2", "nodes: two"),
        [
            "2:8: E103 'nodes' is the text 'two', must be a whole number; write digits only,"
            " such as 2",
        ],
    ),
    (
        CLUSTER + "tags: {team: 7, on_call: no}\nstorage: big\nsoftware: {packages: vim}\n",
        [
            "4:14: E103 'tags.team' is the number 7, must be text; quote it: '7'",
            "4:26: E104 'tags.on_call' is a bare no, which YAML readers understand differently;"
            " quote it: 'no'",
            "5:10: E103 'storage' is 'big', must be a mapping; write keys below it (root, shared,"
            " buckets, scratch), or remove it",
            "6:22: E103 'software.packages' is 'vim', must be a list; write its entries on"
            " separate lines that begin with '- '",
        ],
    ),
    (
        CLUSTER.replace("2\n", "010\n"),
        [
            "2:8: E104 'nodes' is a bare 010, which YAML readers understand differently; write a"
            " plain decimal number, or quote it ('010') if text is meant"
        ],
    ),
    ("- nodes: 2\n", ["1:1: E105 the file is not a mapping; write keys and values: name: demo"]),
    (
        "name: demo\nnodes: 2\n",
        [
            "1:1: E106 this is neither a cluster file nor a run file; a cluster file has"
            " 'instance_type' or 'hosts', a run file has 'type' and 'commands'"
        ],
    ),
    (
        CLUSTER + "placement:\n  strategy: clustre\n",
        [
            "5:13: E201 'placement.strategy' is 'clustre', which is not allowed; did you mean"
            " 'cluster'? Allowed: cluster, none"
        ],
    ),
    (
        RUN + "startup_order: slowly\nready: {port: 65536, timeout: 0s}\n",
        [
            "4:16: E201 'startup_order' is 'slowly', which is not allowed; use any, master-first or"
            " workers-first",
            "5:15: E202 'ready.port' is 65536, above 65535; use 1 to 65535",
            "5:31: E203 'ready.timeout' is '0s', which is no duration; write a whole number (at"
            " most 6 digits) and a unit: s, m, h or d (30m, 8h)",
        ],
    ),
    (
        CLUSTER.replace("2\n", "0\n"),
        ["2:8: E202 'nodes' is 0, below 1; use 1 to 512"],
    ),
    (
        CLUSTER.replace("demo", "My Demo"),
        [
            "1:7: E203 'name' is 'My Demo'; write lower-case letters, digits and hyphens, at most"
            " 30, with a letter first"
        ],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "h100"),
        [
            "3:16: E204 unknown instance type 'h100'; known families: p4d, p4de, p5, p5e,"
            " p5en, p6-b200, p6-b300, g4dn, g5, g6, gr6, g6e, g7, g7e, trn1, trn1n, trn2"
        ],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "p3dn.24xlarge"),
        [
            "3:16: E231 image 'dlami-ubuntu-24.04' has NVIDIA's open driver, and no driver for the"
            " V100 of 'p3dn.24xlarge'; choose a newer type such as p4d.24xlarge, or name an image"
            " of yours (ami-…) with NVIDIA's proprietary driver, of branch 580 or older"
        ],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "g3.4xlarge") + "image: stock-ubuntu-24.04\n",
        [
            "3:16: E231 image 'stock-ubuntu-24.04' has NVIDIA's open driver, and no driver for the"
            " M60 of 'g3.4xlarge'; choose a newer type such as p4d.24xlarge, or name an image of"
            " yours (ami-…) with NVIDIA's proprietary driver, of branch 580 or older"
        ],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "p2.8xlarge") + "image: dlami-al2023\n",
        [
            "3:16: E231 image 'dlami-al2023' has NVIDIA's open driver, and no driver for the"
            " K80 of 'p2.8xlarge'; choose a newer type such as p4d.24xlarge, or name an image of"
            " yours (ami-…) with NVIDIA's proprietary driver, of branch 580 or older"
        ],
    ),
    (CLUSTER.replace("p4d.24xlarge", "p3dn.24xlarge") + "image: ami-0123456789abcdef0\n", []),
    (
        CLUSTER + "budget: {max_hourly: much, max_total: 0}\n",
        [
            "4:22: E103 'budget.max_hourly' is 'much', must be a number; write digits, and a point"
            " if need be, such as 12.50",
            "4:39: E230 'budget.max_total' requires a 'lifetime.max'; set lifetime.max (8h, 2d)",
        ],
    ),
    (
        CLUSTER + "lifetime: {max: 1h}\nbudget: {max_hourly: 0, max_total: 5}\n",
        [
            "5:22: E202 'budget.max_hourly' is 0, below 0.01; use 0.01 to 1000000",
        ],
    ),
    (
        CLUSTER + "network: {cidr: 10.1.2.3/16, ssh_from: home}\n",
        [
            "4:17: E205 'network.cidr' is '10.1.2.3/16', which is no IPv4 range (has host bits"
            " set); write one such as 10.213.0.0/16",
            "4:40: E205 'network.ssh_from' is 'home', which is no IPv4 range (Expected 4 octets in"
            " 'home'); write one such as 10.213.0.0/16",
        ],
    ),
    (
        CLUSTER + "tags:\n  aws:owner: me\n  Gpuctl:x: y\n  Name: z\n",
        [
            "5:3: E206 the key 'aws:owner' begins with aws:; choose another key",
            "6:3: E206 the key 'Gpuctl:x' begins with gpuctl:; choose another key",
            "7:3: E206 the key 'Name' is set by gpuctl on everything; choose another key",
        ],
    ),
    (
        RUN + "env:\n  - A=1\n  - B\n  - 2C=x\n  - A=2\n  - 5\n",
        [
            "7:5: E207 env[2]: '2C' names no variable; use letters, digits and _, with no digit"
            " first",
            "8:5: E207 env[3]: 'A' is set again, after env[0]; keep one of them",
            "9:5: E207 env[4]: the entry is not NAME=value; write NAME=value in quotes",
        ],
    ),
    (
        RUN + "env:\n  A-B: x\n  DSTACK_NODE_RANK: 1\n  C: true\n  D:\n",
        [
            "5:3: E207 the key 'A-B' names no variable; use letters, digits and _, with no digit"
            " first",
            "6:3: E221 'DSTACK_NODE_RANK' cannot be set in 'env': gpuctl sets it: the node's place"
            " in the run, by dstack's names; remove it, or choose another name",
            "7:6: E103 'env.C' is the boolean true, must be text; quote it: 'true'",
            "8:5: E103 'env.D' is empty, must be text; write a text, or '' for an empty one",
        ],
    ),
    (
        CLUSTER + "region: us-east-1\ncapacity: {zones: [us-east-1a, eu-west-1b]}\n",
        [
            "5:32: E208 zone 'eu-west-1b' is not in region 'us-east-1'; use zones of us-east-1, or"
            " change the region"
        ],
    ),
    (
        CLUSTER + "network: {access: private}\n",
        [
            "4:19: E211 'network.access' is private, but 'network.ssh_from' is missing; write the"
            " private IPv4 range that you come from (10.0.0.0/16)"
        ],
    ),
    (CLUSTER + "network: {access: private, ssh_from: 10.0.0.0/16}\n", []),
    (
        CLUSTER + "network: {vpc: vpc-12, subnet: sn-1, cidr: 10.0.0.0/16}\n",
        [
            "4:16: E203 'network.vpc' is 'vpc-12'; write the id of a VPC (vpc-0123456789abcdef0)",
            "4:32: E203 'network.subnet' is 'sn-1'; write the id of a subnet"
            " (subnet-0123456789abcdef0)",
            "4:38: E212 'network.cidr' has no effect: the network exists already; remove it",
        ],
    ),
    (CLUSTER + "network: {subnet: subnet-0123abcd}\n", []),
    (
        CLUSTER + "image: stock-debian-12\nnetwork: {access: ssm, ssh_from: 10.0.0.0/16}\n",
        [
            "5:19: E212 'network.access' is ssm, but stock-debian-12 has no SSM agent; use another"
            " image, or another access",
            "5:24: E212 'network.ssh_from' has no effect: with 'network.access' ssm no port is"
            " open; remove it",
        ],
    ),
    (CLUSTER + "network: {access: ssm}\n", []),
    (
        "name: demo\nnodes: 2\ninstance_type: p7.48xlarge\n",
        [
            "3:16: W205 gpuctl's catalogue has no instance type 'p7.48xlarge'; `gpuctl plan` asks"
            " EC2; nearest: p5.48xlarge, g7.48xlarge, p5e.48xlarge"
        ],
    ),
    (
        CLUSTER + "network: {ssh_from: 0.0.0.0/0}\n",
        [
            "4:21: W202 'network.ssh_from' lets the whole world try to ssh in; leave it out for"
            " your own address alone, or write a narrower range"
        ],
    ),
    (
        CLUSTER + "network: {ssh_from: 198.18.0.0/15}\n",
        [
            "4:21: W202 'network.ssh_from' lets 131072 addresses try to ssh in; leave it out for"
            " your own address alone, or write a narrower range"
        ],
    ),
    (
        CLUSTER + "capacity: {type: reservation}\n",
        [
            "4:1: E210 'capacity.type' is reservation, but 'capacity.id' is missing; write the"
            " reservation's id (cr-…): `gpuctl capacity TYPE` lists yours"
        ],
    ),
    (
        CLUSTER
        + "capacity: {type: capacity-block, id: cr-0123456789abcdef0, zones: [us-east-1a]}\n",
        ["4:60: E210 'capacity.zones' has no effect: a capacity-block lies in one zone; remove it"],
    ),
    (
        CLUSTER + "capacity: {id: cr-0123456789abcdef0, wait: soon}\n",
        [
            "4:12: E210 'capacity.id' has no effect: 'capacity.type' is on-demand; set the type to"
            " reservation or capacity-block, or remove the id",
            "4:44: E203 'capacity.wait' is 'soon', which is no duration; write a whole number (at"
            " most 6 digits) and a unit: s, m, h or d (30m, 8h)",
        ],
    ),
    (
        CLUSTER + "image: stock-debian-12\nsoftware: {driver: '580', openmpi: 5}\n",
        [
            "5:20: E209 'software.driver' has no effect: stock-debian-12 has no GPU software;"
            " remove it",
            "5:36: E209 'software.openmpi' is 5, Debian 12 has Open MPI 4; use 4, or another image",
        ],
    ),
    (
        CLUSTER + "setup: {files: {etc/motd: x}}\n",
        ["4:17: E203 the key 'etc/motd' is no file; write its whole path: /etc/motd"],
    ),
    *(
        (
            f"name: demo\nnodes: 2\ninstance_type: trn1.32xlarge\nsoftware: {{{pin}: {version}}}\n",
            [
                f"4:{14 + len(pin)}: E209 'software.{pin}' has no effect: trn1.32xlarge has no GPU;"
                " remove it"
            ],
        )
        for pin, version in (
            ("driver", "'580'"),
            ("efa", "1.51.0"),
            ("nccl", "2.30.4-1"),
            ("nccl_tests", "2.19.0"),
        )
    ),
    (
        CLUSTER + "image: stock-ubuntu-24.04\nsoftware: {nccl: 2.99.1-1, nccl_tests: 2.99.2}\n",
        [
            "5:18: E209 'software.nccl' is 2.99.1-1, a release whose commit gpuctl does not know;"
            " write 2.99.1-1@COMMIT with the whole commit of the tag v2.99.1-1 in"
            " https://github.com/NVIDIA/nccl, or a known release up to 2.30.7-1",
            "5:40: E209 'software.nccl_tests' is 2.99.2, a release whose commit gpuctl does not"
            " know; write 2.99.2@COMMIT with the whole commit of the tag v2.99.2 in"
            " https://github.com/NVIDIA/nccl-tests, or a known release up to 2.19.6",
        ],
    ),
    (
        # What the image brings is checked, not built.
        CLUSTER + "software: {nccl: 2.99.1-1}\n",
        [],
    ),
    (
        CLUSTER + f"image: stock-ubuntu-24.04\nsoftware: {{nccl: 2.99.1-1@{'c' * 40}}}\n",
        [],
    ),
    (
        CLUSTER + "software: {nccl_tests: 2.18.3@f727aa2}\n",
        [
            "4:24: E203 'software.nccl_tests' is '2.18.3@f727aa2'; write a release of nccl-tests"
            " such as 2.18.3, or one with its commit: 2.18.3@<40 hex digits>"
        ],
    ),
    (
        # No type is known of which an id could be the mistake.
        CLUSTER + "capacity: {type: sport, id: cr-0123456789abcdef0}\n",
        [
            "4:18: E201 'capacity.type' is 'sport', which is not allowed; did you mean 'spot'?"
            " Allowed: on-demand, spot, reservation, capacity-block"
        ],
    ),
    *LENGTH_CASES,
    *NOTIFY_CASES,
    *SHAPE_CASES,
    *HOSTS_CASES,
    *STORAGE_CASES,
    *RUN_CASES,
    *SWEEP_CASES,
    *COMMAND_CASES,
    *LAUNCHER_CASES,
]


def complaints(folder: Path, text: str) -> list[str]:
    file = folder / "file.yaml"
    file.write_text(text)
    return [str(diagnostic).removeprefix(f"{file}:") for diagnostic in check(file)]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_exact_lines(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert complaints(tmp_path, text) == expected


@pytest.mark.parametrize("command", GOOD_COMMANDS)
def test_a_command_that_bash_reads_is_no_mistake(tmp_path: Path, command: str) -> None:
    text = "".join(f"    {line}\n" for line in command.split("\n"))
    assert complaints(tmp_path, f"type: task\nname: hello\ncommands:\n  - |\n{text}") == []


def test_a_bash_that_does_not_answer_every_question_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = tmp_path / "bash"
    bash.write_text('#!/bin/sh\n/bin/rm "$0"; exec /bin/bash "$@"\n')  # there for one call
    bash.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = "if [ -e again ]; then echo 'read by the second bash'; fi"
    assert complaints(tmp_path, f"type: task\nname: hello\ncommands:\n  - {command}\n") == []
    assert not bash.exists()


@pytest.mark.parametrize(("kind", "command"), OTHER_COMMANDS)
def test_a_command_that_calls_no_launcher_is_no_mistake(
    tmp_path: Path, kind: str, command: str
) -> None:
    text = "".join(f"    {line}\n" for line in command.split("\n"))
    assert complaints(tmp_path, f"type: {kind}\nname: hello\ncommands:\n  - |\n{text}") == []


def test_commands_of_dstack_are_checked_in_every_shell(tmp_path: Path) -> None:
    text = "type: task\nname: hello\nshell: sh\ncommands:\n  - ls\n  - |\n    ls\n    echo 'a\n"
    assert complaints(tmp_path, text) == [f"8:5: E248 'commands[1]' has no ' that closes; {CLOSE}"]
    python = "type: task\nname: hello\npython: '3.12'\ncommands:\n  - |\n    pip list\n    (\n"
    assert complaints(tmp_path, python) == [
        "7:5: E248 'commands[0]' ends within a command: an if, for, case or { is open; " + CLOSE
    ]


def test_every_code_is_shown_above_and_no_other() -> None:
    shown = {line.split()[1] for _, lines in CASES for line in lines}
    # E107 needs a command that wants the other kind; test_broken_files.py shows E108.
    of_templates = {"E216", "E217", "E218", "W203"}
    of_manifests = {"E224", "E225", "E227", "W204", "W208", "W209", "W211", "W212"}
    of_dstack = {"E228", "E229", "W206", "W207"}
    of_code = {"E241", "E242", "E243", "W241"}  # test_code.py
    elsewhere = of_templates | of_manifests | of_dstack | of_code
    assert shown == set(CODES) - {"E107", "E108"} - elsewhere


def test_a_file_given_to_the_wrong_command_is_one_line() -> None:
    stacks = Path(__file__).parents[2] / "stacks"
    with pytest.raises(InvalidFiles) as error:
        load_run(stacks / "demo.yaml")
    assert str(error.value) == (
        f"{stacks / 'demo.yaml'}:2:1: E107 this is a cluster file; give it to `gpuctl up`"
    )
    with pytest.raises(InvalidFiles) as error:
        load_cluster(stacks / "hello.yaml")
    assert str(error.value) == (
        f"{stacks / 'hello.yaml'}:2:1: E107 this is a run file; give it to `gpuctl run`"
    )


def test_six_mistakes_of_six_kinds_at_once(tmp_path: Path) -> None:
    text = (
        "name: demo\n"
        "nodes: 0\n"
        "instance_type: p5.48xlage\n"
        "instance_typ: p5.48xlarge\n"
        "region: us-east-1\n"
        "region: us-west-2\n"
        "placement:\n"
        "  strategy: spread\n"
        "storage:\n"
        '  root: {gib: "200"}\n'
    )
    assert complaints(tmp_path, text) == [
        "2:8: E202 'nodes' is 0, below 1; use 1 to 512",
        "3:16: E204 unknown instance type 'p5.48xlage'; nearest: p5.48xlarge, p5e.48xlarge,"
        " p5.4xlarge",
        "4:1: E101 unknown key 'instance_typ'; did you mean 'instance_type'?",
        "6:1: E003 'region' is given twice, on lines 5 and 6; keep one of them",
        "8:13: E201 'placement.strategy' is 'spread', which is not allowed; use cluster or none",
        "10:15: E103 'storage.root.gib' is the text '200', must be a whole number; remove the"
        " quotes",
    ]


def test_a_tab_that_hides_the_structure_is_the_only_complaint(tmp_path: Path) -> None:
    text = CLUSTER + "network:\n  cidr: 10.0.0.0/16\n\tefa: auto\n"
    assert complaints(tmp_path, text) == [
        "6:1: E002 a tab, where YAML allows spaces only; use spaces"
    ]


def test_a_tab_inside_a_block_of_text_is_the_commands_own(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("type: task\nname: hello\ncommands:\n  - |\n    cat <<-X\n    \tx\n    X\n")
    assert check(file) == ()
    run = load_run(file)
    assert isinstance(run, Task)
    assert run.commands == ("cat <<-X\n\tx\nX\n",)


def test_a_complaint_behind_an_alias_stands_once_where_the_value_is(tmp_path: Path) -> None:
    text = CLUSTER + "tags: {a: &v !x b, c: *v}\n"
    assert complaints(tmp_path, text) == [
        "4:11: E007 the tag !x means nothing to gpuctl; remove the tag"
    ]


def test_many_aliases_of_aliases_are_refused_quickly(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    text = "\n".join(["a0: &a0 [x]", *levels])
    assert complaints(tmp_path, text) == [
        "1:1: E008 the file is too large; write less than 20 000 values"
    ]


def test_deep_nesting_is_one_complaint(tmp_path: Path) -> None:
    assert complaints(tmp_path, "[" * 5000) == [
        "1:1: E008 the file is nested too deeply; flatten it"
    ]


def test_merge_keys_are_told_apart_from_misspelled_ones(tmp_path: Path) -> None:
    text = CLUSTER + "storage:\n  <<: {root: 40}\n"
    assert complaints(tmp_path, text) == [
        "5:3: E101 unknown key '<<'; gpuctl reads no merge keys: write the keys out"
    ]


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(b"name: demo\ntags: {a: \xff}\n")
    assert [str(d) for d in check(file)] == [
        f"{file}:2:11: E004 the file is not UTF-8 text; save it as UTF-8"
    ]


def test_a_misspelled_key_still_tells_what_the_file_is(tmp_path: Path) -> None:
    text = "name: demo\nnodes: 2\ninstance_typ: p4d.24xlarge\n"
    assert [line.split(";")[0] for line in complaints(tmp_path, text)] == [
        "1:1: E102 'instance_type' is missing",
        "3:1: E101 unknown key 'instance_typ'",
    ]


def test_the_file_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.yaml").write_text(CLUSTER.replace("2\n", "0\n"))
    monkeypatch.chdir(tmp_path)
    assert str(check(Path("sub/c.yaml"))[0]).startswith("sub/c.yaml:2:8: E202 ")


def test_carriage_returns_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + CLUSTER.replace("\n", "\r\n").encode())
    assert load_cluster(file).nodes == 2


def test_what_the_file_holds_cannot_break_the_line_or_the_terminal(tmp_path: Path) -> None:
    text = CLUSTER + 'tags: {"a\\nb": 1}\n"\\e[31m": é\nregion: "\\eüx"\n'
    assert complaints(tmp_path, text) == [
        "4:16: E103 'tags.a\\nb' is the number 1, must be text; quote it: '1'",
        "5:1: E101 unknown key '\\x1b[31m'; allowed here: name, nodes, instance_type, region,"
        " image, placement, capacity, network, instance_profile, storage, software, setup,"
        " lifetime, budget, tags",
        "6:9: E203 'region' is '\\x1büx'; write an AWS region such as us-east-1",
    ]
