"""Mistakes in files with `hosts`: part of `tests.config.test_complaints`."""

HOSTS = "name: lab7\nhosts:\n"

HOSTS_CASES: list[tuple[str, list[str]]] = [
    (
        HOSTS + "  - address: 10.0.0.[11-18]\n  - address: gpu[1-2].example.org\nuser: ubuntu\n",
        [],
    ),
    (
        HOSTS + "  - address: gpu9\ninstance_type: p5.48xlarge\nlifetime: {max: 8h}\nnodes: 2\n",
        [
            "4:1: E232 'instance_type' is for a cluster that gpuctl rents, and this file has"
            " 'hosts'; remove it, or remove 'hosts'",
            "5:1: E232 'lifetime' is for a cluster that gpuctl rents, and this file has 'hosts';"
            " remove it, or remove 'hosts'",
            "6:1: E232 'nodes' is for a cluster that gpuctl rents, and this file has 'hosts';"
            " remove it, or remove 'hosts'",
        ],
    ),
    (
        HOSTS
        + "  - address: 10.0.0.[1-2]\n    internal: 10.1.1.1\n"
        + "  - address: 10.0.0.2\n    internal: gpu2\n",
        [
            "4:15: E233 'internal' is one address, and 'address' means 2 hosts; write an entry for"
            " each host",
            "5:14: E233 host 10.0.0.2 is in 'hosts[0]' too; remove one",
            "6:15: E203 'hosts[1].internal' is 'gpu2', which is no IPv4 address; write 192.168.3.9",
        ],
    ),
    (
        HOSTS + "  - {adress: x, port: 99999}\n  - {address: 'a:b', user: Rob, identity: -v}\n",
        [
            "3:5: E102 'hosts[0].address' is missing; add it: Address or name, as you would give it"
            " to `ssh`: a `Host` of your `~/.ssh/config` too. Several are folded:"
            " `10.0.0.[11-18]`",
            "3:6: E101 unknown key 'adress'; did you mean 'address'?",
            "3:23: E202 'hosts[0].port' is 99999, above 65535; use 1 to 65535",
            "4:15: E203 'hosts[1].address' is 'a:b', which is neither an address nor a name; write"
            " 10.0.0.7, gpu1.example.org or 10.0.0.[11-18]",
            "4:28: E203 'hosts[1].user' is 'Rob'; write the name of a user: lower-case letters,"
            " digits, '_' and '-'",
            "4:43: E203 'hosts[1].identity' is '-v'; write one line of text that does not begin"
            " with '-'",
        ],
    ),
    *(
        (
            HOSTS + f"  - {{address: gpu9, jump: {jump!r}}}\n",
            [
                f"3:27: E203 'hosts[0].jump' is {jump!r}; write machines as in `ssh -J`:"
                " USER@HOST:PORT, several with commas"
            ],
        )
        for jump in ("x;touch evil", "$(touch evil)", "-oProxyCommand=evil", "a,`evil`")
    ),
    (
        HOSTS
        + "  - {address: gpu9, jump: 'me@door:2222,ssh://[fe80::1%eth0]:22'}\n"
        + "  - {address: gpu8, jump: '[fe80::1]:22,b_c.example.org'}\n",
        [],
    ),
    ("name: lab7\nhosts: []\n", ["2:8: E202 'hosts' is empty; write at least one entry or letter"]),
]
