"""What people read when `notify` is wrong: part of the cases of test_complaints.py."""

TASK = "type: task\nname: hello\ncommands: [hostname]\nnotify:\n"
ADDRESS = "write an address such as https://example.com/hook"

NOTIFY_CASES: list[tuple[str, list[str]]] = [
    *(
        (TASK + f"  - webhook: {url}\n", [f"5:14: E244 'notify[0].webhook' is ***, {text}"])
        for url, text in (
            (
                "http://example.com/T0/hidden",
                "which sends over http:// to the public host example.com; write https://",
            ),
            (
                "http://93.184.216.34/x",
                "which sends over http:// to the public host 93.184.216.34; write https://",
            ),
            (
                "https://hooks.slack.com/services/T0/B0/hidden",
                "which is a secret: whoever has it can write to the channel; write {secret: NAME}"
                " for the secret of that name",
            ),
            (
                "https://me:hidden@example.com/x",
                "which has a user or a password in it; write `headers: {Authorization: {secret:"
                " NAME}}`",
            ),
            ('"https://"', f"which does not begin with https:// and a host; {ADDRESS}"),
            ("ftp://example.com/x", f"which does not begin with https:// and a host; {ADDRESS}"),
            ("SLACK_WEBHOOK", f"which does not begin with https:// and a host; {ADDRESS}"),
            ('"https://example.com/a b"', f"which is no URL; {ADDRESS}"),
            ('"https://example.com/a\\x7Fb"', f"which is no URL; {ADDRESS}"),
            ("https://example.com:x/", f"which is no URL; {ADDRESS}"),
            ("https://[::1/", f"which is no URL; {ADDRESS}"),
            ("https://exämple.com/", f"which is no URL; {ADDRESS}"),
        )
    ),
    *(
        (TASK + f"  - webhook: {url}\n", [])
        for url in (
            *("https://example.com/x?y=z", "http://127.0.0.1:9/x", "http://[::1]:8080/"),
            *("http://10.1.2.3/", "http://hooks:80/x", "http://hooks.lan/x", "{secret: HOOK}"),
        )
    ),
    (
        TASK + "  - {webhook: {secret: A}, on: [start, finish], form: teams}\n",
        [
            "5:40: E201 'notify[0].on[1]' is 'finish', which is not allowed; use"
            " start, retry, waiting, interruption, notice, lease, budget, failure or end",
            "5:55: E201 'notify[0].form' is 'teams', which is not allowed; use json or slack",
        ],
    ),
    (
        TASK + "  - {webhook: {secret: A}, on: []}\n  - {webhook: {secret: A b}}\n",
        [
            "5:32: E202 'notify[0].on' is empty; write at least one entry or letter",
            "6:24: E203 'notify[1].webhook.secret' is ***; write letters, digits and _, with no"
            " digit first",
        ],
    ),
    (
        TASK + "  - command: ''\n  - command: '  '\n",
        [
            "5:14: E202 'notify[0].command' is empty; write at least one entry or letter",
            "6:14: E203 'notify[1].command' is '  ', which is blank; write a shell command",
        ],
    ),
    (
        TASK + "  - {on: [end]}\n  - {webhook: {secret: A}, command: x}\n",
        [
            "5:5: E102 'notify[0]' has no webhook, command or email; add `webhook: {secret:"
            " NAME}`, `command: …` or `email: {…}`",
            "6:37: E223 'notify[1]' has webhook and command; write an entry of `notify` for each",
        ],
    ),
    (
        TASK + "  - {command: x, form: slack, headers: {}}\n  - {webhook: {secret: A}, env: {}}\n",
        [
            "5:18: E223 'notify[0].form' has no effect: there is no 'webhook'; remove it",
            "5:31: E223 'notify[0].headers' has no effect: there is no 'webhook'; remove it",
            "6:28: E223 'notify[1].env' has no effect: there is no 'command'; remove it",
        ],
    ),
    *(
        (
            TASK + f"  - {{command: x, env: {env}}}\n",
            [
                f"5:{place}: E221 'GPUCTL_EVENT' cannot be set in 'notify[0].env': gpuctl sets"
                " variables of that form; choose another name"
            ],
        )
        for env, place in (("{GPUCTL_EVENT: y}", 24), ("[GPUCTL_EVENT=y]", 24))
    ),
    (
        TASK + '  - {webhook: {secret: A}, headers: {"X Y": z, Authorization: "hidden\\n"}}\n',
        [
            "5:45: E203 notify[0].headers.X Y: is no name of a header; use letters, digits and -",
            "5:63: E203 notify[0].headers.Authorization: is not one line of ASCII; write one line,"
            " or {secret: NAME}",
        ],
    ),
    (
        TASK + "  - email: {host: 'a:25', sender: Ann <a@b.c>, to: [], user: {secret: U},"
        " password: hidden}\n",
        [
            "5:19: E203 'notify[0].email.host' is 'a:25'; write a host's name or IPv4 address,"
            " without a port",
            "5:35: E203 'notify[0].email.sender' is 'Ann <a@b.c>'; write one address such as"
            " me@example.com, without a name",
            "5:52: E202 'notify[0].email.to' is empty; write at least one entry or letter",
            "5:85: E103 'notify[0].email.password' is ***, must be a mapping; write {secret: NAME}"
            " for the secret of that name",
        ],
    ),
    (
        TASK + "  - {webhook: {secret: A}, colour: red}\n",
        [
            "5:28: E101 unknown key 'colour'; allowed here: webhook, form, headers, command, env,"
            " email, on"
        ],
    ),
    (
        TASK.replace("notify:\n", "notify: {webhook: {secret: A}}\n"),
        [
            "4:9: E103 'notify' is a mapping, must be a list; write its entries on separate lines"
            " that begin with '- '"
        ],
    ),
    (
        TASK + 11 * "  - {command: x}\n",
        ["5:3: E202 'notify' has more than 10 entries; shorten it"],
    ),
]
