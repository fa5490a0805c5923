"""What people read when the lists of a run of nccl-tests are wrong: cases of test_complaints.py."""

from tests.config.run_cases import NCCL

TWO = NCCL + "nodes: 2\n"
BUSBW = 'busbw: ">= 380"'

SWEEP_CASES: list[tuple[str, list[str]]] = [
    (
        TWO + "collectives: [all_reduce, reduce]\nsizes: [64K, 8]\ndtypes: [half]\nredops: [max]\n"
        "scopes: [all, intra, inter]\nsweep: {NCCL_ALGO: [Ring, Tree], NCCL_NTHREADS: [64, 128]}\n"
        f"repeat: 3\nexpect: {{reduce: {{{BUSBW}, at: 65536, scope: inter}}}}\n",
        [],
    ),
    (TWO + "gpus_per_node: [1, 2]\nscopes: [intra]\nexpect: reference\n", []),
    (
        NCCL + "sizes: [1 MB]\nfactor: 4\nmax_bytes: 1G\n",
        [
            "3:9: E203 'sizes[0]' is '1 MB'; write bytes, with K, M or G if need be: 8, 64K, 1M,"
            " 8G",
            "4:1: E223 'factor' has no effect: 'sizes' lists every size; remove one of them",
            "5:1: E223 'max_bytes' has no effect: 'sizes' lists every size; remove one of them",
        ],
    ),
    (
        NCCL + "collectives: [all_reduce, all_gather]\nredops: [max, mean]\ndtypes: []\n",
        [
            "4:1: E223 'redops' has no effect on all_gather, which reduces nothing; remove it, or"
            " keep to all_reduce, reduce, reduce_scatter",
            "4:15: E201 'redops[1]' is 'mean', which is not allowed; use sum, prod, min, max, avg"
            " or mulsum",
            "5:9: E202 'dtypes' is empty; write at least one entry or letter",
        ],
    ),
    (
        NCCL + "scopes: [inter]\ngpus_per_node: [0, 2]\nprocs_per_node: 2\n",
        [
            "3:9: E223 'scopes' has inter, but 'nodes' is 1; write nodes: 2 or more",
            "4:1: E223 'gpus_per_node' has no effect on scope inter, which takes one GPU of each"
            " node; remove one of them",
            "4:17: E202 'gpus_per_node[0]' is 0, below 1; use 1 to 64",
            "5:1: E223 'gpus_per_node' and 'procs_per_node' both set the ranks of a node; remove"
            " one of them",
        ],
    ),
    (
        NCCL + "env: [A=1]\nsweep:\n  A: [1]\n  B: []\n  C: x\n  9D: [1]\n  E: [true]\n"
        "  GPUCTL_X: [1]\n",
        [
            "5:3: E223 'A' is in 'sweep' and in 'env'; remove one of them",
            "6:6: E202 'sweep.B' is empty; write at least one entry or letter",
            "7:6: E103 'sweep.C' is 'x', must be a list; write its entries on separate lines that"
            " begin with '- '",
            "8:3: E207 the key '9D' names no variable; use letters, digits and _, with no digit"
            " first",
            "9:7: E103 'sweep.E[0]' is the boolean true, must be text; quote it: 'true'",
            "10:3: E221 'GPUCTL_X' cannot be set in 'sweep': gpuctl sets it: the node's place in"
            " the run; remove it, or choose another name",
        ],
    ),
    (
        TWO + "sizes: [8, 16]\nscopes: [intra, all]\nrepeat: 100\nsweep: {A: [1, 2]}\n",
        ["1:1: E202 the lists make 1200 cases, more than 1000; shorten a list, or make two runs of"
         " it"],
    ),
    (
        NCCL + f"expect: {{all_gather: {{{BUSBW}, at: 8G}}, all_reduce: {{{BUSBW}, at: 12M}}}}\n"
        "verify: 'off'\n",
        [
            "3:1: E223 'expect' has no effect: 'verify' is off; remove one of them",
            "3:10: E223 'expect' has all_gather, which is not among 'collectives'; allowed here:"
            " all_reduce",
            "3:83: E223 'expect.all_reduce.at' is 12M, which is not measured; use one of the sizes:"
            " 8 to 8G by factor 2",
        ],
    ),
    (
        TWO + "sizes: [8, 1M]\nscopes: [intra, inter]\ncollectives: [all_reduce, reduce]\n"
        f"expect:\n  all_reduce: {{{BUSBW}, at: 2M}}\n"
        f"  reduce: {{{BUSBW}, at: 1M, scope: all}}\n",
        [
            "8:3: E102 'expect.all_reduce.scope' is missing: there are several 'scopes'; add one of"
            " them: intra, inter",
            "8:37: E223 'expect.all_reduce.at' is 2M, which is not measured; use one of the sizes:"
            " 8, 1M",
            "9:44: E223 'expect.reduce.scope' is all, which is not measured; use one of 'scopes':"
            " intra, inter",
        ],
    ),
    (
        NCCL + "expect: {all_reduce: {busbw: 380, at: 8G}}\n",
        ["3:30: E103 'expect.all_reduce.busbw' is the number 380, must be text; quote it: '380'"],
    ),
    (
        NCCL + "expect: {all_reduce: {busbw: '> 380', by: 1}}\n",
        [
            "3:22: E102 'expect.all_reduce.at' is missing; add it: The message size; one that the"
            " run measures",
            "3:30: E203 'expect.all_reduce.busbw' is '> 380'; write the lowest bandwidth in GB/s,"
            " such as '>= 380'",
            "3:39: E101 unknown key 'by'; allowed here: busbw, at, scope",
        ],
    ),
    (
        NCCL + "expect: refrence\n",
        [
            "3:9: E201 'expect' is 'refrence', which is not allowed; did you mean 'reference'?"
            " Allowed: reference"
        ],
    ),
    (
        NCCL + "expect: [all_reduce]\n",
        ["3:9: E103 'expect' is a list, must be a mapping; write keys below it (NAME: value), or"
         " remove it"],
    ),
]  # fmt: skip
