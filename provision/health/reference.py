"""The generated part of docs/look-up/health-rules.md: the table of rules.

`python -m provision.health.reference` writes it.
"""

from collections.abc import Iterator
from itertools import groupby

from config.generated_page import GeneratedPage, merged_rows
from config.xid import UNKNOWN, XIDS
from provision.health.rules import DEEP_RULES, RULES
from provision.health.rules.gpus import XID_SEVERITIES

CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


def reference() -> str:
    """Return the table, and below it each rule's remedy and source."""
    lines = ["## Rules\n", "| rule | what it reads | expected | severity | before a run |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for rule in (*RULES, *DEEP_RULES):
        when = "yes" if rule.is_short else "" if rule in RULES else "`--deep` alone"
        lines.append(f"| `{rule.id}` | {rule.reads} | {rule.expects} | {rule.severity} | {when} |")
    lines += ["\n## Remedies and sources\n", "| rule | remedy | source |", "| --- | --- | --- |"]
    lines += merged_rows(
        (f"`{rule.id}`", f"{rule.remedy} | {rule.source}") for rule in (*RULES, *DEEP_RULES)
    )
    return "\n".join([*lines, *_xid_errors()]) + "\n"


def _xid_errors() -> Iterator[str]:
    """Yield the table of Xid errors; equal rows are one."""
    yield "\n## Xid errors\n"
    yield "NVIDIA's action is the *Resolution Bucket (Immediate Action)* of"
    yield f"[its catalogue]({CATALOGUE}), read on 2026-11-26."
    yield "`config/xid.py` says why some severities differ from it."
    yield f"Any other Xid counts as `{UNKNOWN.bucket}`.\n"
    yield "| Xid | error | NVIDIA's action | severity |"
    yield "| --- | --- | --- | --- |"
    for entry, rows in groupby(XIDS.items(), key=lambda row: row[1]):
        numbers = ", ".join(str(number) for number, _ in rows)
        bucket = f"`{entry.bucket}`" if entry.bucket else "none"
        severity = XID_SEVERITIES.get(entry.action, "watch")
        yield f"| {numbers} | {entry.meaning} | {bucket} | {severity} |"


def page() -> GeneratedPage:
    """Return the page."""
    return GeneratedPage("look-up/health-rules.md", "provision.health.reference", reference())


if __name__ == "__main__":
    page().write()
