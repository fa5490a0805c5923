"""The generated part of docs/health.md: the table of rules.

`python -m provision.health.reference` writes it. A test fails if the page differs. The part above
the marker is written by hand and does not change.
"""

from pathlib import Path

from provision.health.rules import DEEP_RULES, RULES

PAGE = Path(__file__).parents[2] / "docs/health.md"
MARKER = "<!-- Below: written by `python -m provision.health.reference`. -->\n"


def reference() -> str:
    """Return the table, and below it each rule's remedy and source."""
    lines = ["## Rules\n", "| rule | what it reads | expected | severity | before a run |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for rule in (*RULES, *DEEP_RULES):
        when = "yes" if rule.is_short else "" if rule in RULES else "`--deep` alone"
        lines.append(f"| `{rule.id}` | {rule.reads} | {rule.expects} | {rule.severity} | {when} |")
    lines += ["\n## Remedies and sources\n", "| rule | remedy | source |", "| --- | --- | --- |"]
    lines += [f"| `{rule.id}` | {rule.remedy} | {rule.source} |" for rule in (*RULES, *DEEP_RULES)]
    return "\n".join(lines) + "\n"


def replace_reference(page: str) -> str:
    """Return the page with everything below its marker replaced."""
    return page.partition(MARKER)[0] + MARKER + "\n" + reference()


def main() -> None:
    """Write the generated part of the page."""
    PAGE.write_text(replace_reference(PAGE.read_text()))


if __name__ == "__main__":
    main()
