"""The generated parts of docs/look-up/modes.md and docs/look-up/network.md.

They are rules, environment and network presets.

`python -m engine.plan.mode_reference` writes them from the tables that runs use.
"""

from collections.abc import Iterable, Iterator

from config.generated_page import GeneratedPage
from config.run.launchers import OPEN_MPI_INTERFACES
from config.run.owned_variables import OWNED, Owned
from config.run.run_file import RUN_TYPES
from engine.plan.network.preset_tables import presets_reference
from engine.plan.rules import RULES


def modes_reference() -> str:
    """Return the table of rules, and for each type the variables that a run file cannot set."""
    return "\n".join([*_rules(), *_counts(), *_environment()])


def pages() -> list[GeneratedPage]:
    """Return the pages."""
    references = {"look-up/modes.md": modes_reference(), "look-up/network.md": presets_reference()}
    return [
        GeneratedPage(name, "engine.plan.mode_reference", text) for name, text in references.items()
    ]


def main() -> None:
    """Write the generated parts of the pages in docs/."""
    for page in pages():
        page.write()


def _rules() -> Iterator[str]:
    yield "## Rules\n"
    yield "gpuctl checks them before anything runs. Rules about the run file alone are in"
    yield "[diagnostics.md](diagnostics.md).\n"
    yield "| rule | reason | remedy |"
    yield "| --- | --- | --- |"
    yield from (f"| {rule.requirement} | {rule.reason} | {rule.remedy} |" for rule in RULES)
    yield ""


def _counts() -> Iterator[str]:
    yield "## What `RANK` and `WORLD_SIZE` count\n"
    yield "| type | they count |"
    yield "| --- | --- |"
    yield from (
        f"| `{name}` | {model.COUNTED or 'nothing: not set'} |" for name, model in RUN_TYPES.items()
    )
    yield ""


def _environment() -> Iterator[str]:
    yield "## Environment of every type\n"
    yield "A run file cannot set these names, nor those of its type below.\n"
    yield from _table(OWNED["task"])
    for own, names in _types_by_variables().items():
        yield f"## Environment of {' and '.join(f'`{name}`' for name in names)}\n"
        yield from _table(own)
    yield "## Defaults of Open MPI\n"
    yield "Set by `mpi` and `nccl-tests` with Open MPI, unless `env` or `mpirun_args` choose"
    yield "interfaces themselves.\n"
    yield "| variable | value |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | `{value}` |" for name, value in OPEN_MPI_INTERFACES.items())
    yield ""


def _types_by_variables() -> dict[tuple[Owned, ...], list[str]]:
    """Return the types by the variables that they own in addition to the common ones."""
    types: dict[tuple[Owned, ...], list[str]] = {}
    for name, rows in OWNED.items():
        own = tuple(row for row in rows if row not in OWNED["task"])
        if own:
            types.setdefault(own, []).append(name)
    return types


def _table(rows: Iterable[Owned]) -> Iterator[str]:
    yield "| variable | set by | value | source |"
    yield "| --- | --- | --- | --- |"
    yield from (f"| `{row.name}` | {row.by} | {row.value} | {row.source} |" for row in rows)
    yield ""


if __name__ == "__main__":
    main()
