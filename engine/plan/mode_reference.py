"""The generated parts of docs/look-up/modes.md and docs/look-up/network.md.

They are rules, environment and network presets.

`python -m engine.plan.mode_reference` writes them from the tables that runs use.
"""

from collections.abc import Collection, Iterable, Iterator

from config.generated_page import GeneratedPage, merged_rows
from config.run.owned_variables import OPEN_MPI_INTERFACES, OWNED, Owned
from config.run.run_file import RUN_TYPES, PresetName
from engine.plan.network.presets import MAY_FORK, PRESETS
from engine.plan.network.settings import HCAS, INTERFACE, BadSetting, PresetVariable
from engine.plan.rules import RULES


def modes_reference() -> str:
    """Return the table of rules, and for each type the variables that a run file cannot set."""
    sources = _Sources()
    return "\n".join([*_rules(), *_counts(), *_environment(sources), *sources.list()])


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


class _Sources:
    """The sources of a page's rows, which name them by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, source: str) -> int:
        """Return the source's number."""
        return self._numbers.setdefault(source, len(self._numbers) + 1)

    def list(self) -> Iterator[str]:
        """Yield the section that lists the sources."""
        yield "## Sources\n"
        yield from (f"{number}. {source}" for source, number in self._numbers.items())
        yield ""


def _counts() -> Iterator[str]:
    yield "## What `RANK` and `WORLD_SIZE` count\n"
    yield "gpuctl sets neither for the types that are not listed.\n"
    yield "| type | they count |"
    yield "| --- | --- |"
    yield from (
        f"| `{name}` | {model.COUNTED} |" for name, model in RUN_TYPES.items() if model.COUNTED
    )
    yield ""


def _environment(sources: _Sources) -> Iterator[str]:
    yield "## Environment of every type\n"
    yield "A run file cannot set these names, nor those of its type below.\n"
    yield from _variables(OWNED["task"], sources)
    shown: dict[Owned, str] = {}
    for own, names in _types_by_variables().items():
        yield f"## Environment of {' and '.join(f'`{name}`' for name in names)}\n"
        yield from _as_in((row.name, shown[row]) for row in own if row in shown)
        yield from _variables([row for row in own if row not in shown], sources)
        for row in own:
            shown.setdefault(row, names[0])
    yield "## Defaults of Open MPI\n"
    yield "Set by `mpi` and `nccl-tests` with Open MPI, unless `env` or `mpirun_args` choose"
    yield "interfaces themselves.\n"
    yield "| variable | value |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | `{value}` |" for name, value in OPEN_MPI_INTERFACES.items())
    yield ""


def _as_in(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each earlier table that has some of these variables, with their names."""
    names: dict[str, list[str]] = {}
    for name, table in rows:
        names.setdefault(table, []).append(f"`{name}`")
    for table, variables in names.items():
        yield f"As in `{table}`: {', '.join(variables)}.\n"


def _types_by_variables() -> dict[tuple[Owned, ...], list[str]]:
    """Return the types by the variables that they own in addition to the common ones."""
    types: dict[tuple[Owned, ...], list[str]] = {}
    for name, rows in OWNED.items():
        own = tuple(row for row in rows if row not in OWNED["task"])
        if own:
            types.setdefault(own, []).append(name)
    return types


def _variables(rows: Collection[Owned], sources: _Sources) -> Iterator[str]:
    if rows:
        yield "| variable | set by | value | source |"
        yield "| --- | --- | --- | --- |"
        for row in rows:
            yield f"| `{row.name}` | {row.by} | {row.value} | {sources.number(row.source)} |"
        yield ""


def presets_reference() -> str:
    """Return a table per preset with variables, then one of variables that users should not set."""
    sources = _Sources()
    return "\n".join([*_presets(sources), *_unwise(sources), *sources.list()])


def _presets(sources: _Sources) -> Iterator[str]:
    shown: dict[PresetVariable, str] = {}
    for preset in PRESETS.values():
        if not preset.settings:
            continue
        yield f"## `network: {preset.name}`: {preset.title}\n"
        yield from _as_in((each.name, shown[each]) for each in preset.settings if each in shown)
        if new := [setting for setting in preset.settings if setting not in shown]:
            yield "| variable | value | why | versions | source |"
            yield "| --- | --- | --- | --- | --- |"
            yield from (_setting(setting, sources) for setting in new)
            yield ""
        for setting in preset.settings:
            shown.setdefault(setting, preset.name)


def _setting(setting: PresetVariable, sources: _Sources) -> str:
    where = f"; only on {', '.join(setting.families)}" if setting.families else ""
    where += f"; {MAY_FORK}" if setting.is_for_forks else ""
    value = setting.value if setting.value in (HCAS, INTERFACE) else f"`{setting.value}`"
    why = f"{setting.reason}{where} | {setting.versions} | {sources.number(setting.source)}"
    return f"| `{setting.name}` | {value} | {why} |"


def _unwise(sources: _Sources) -> Iterator[str]:
    yield "## Variables that cause a warning\n"
    yield "| variable | with | it | instead | source |"
    yield "| --- | --- | --- | --- | --- |"
    yield from merged_rows(
        (
            f"`{unwise.name}`" + (f" = {values}" if (values := _values(unwise)) else ""),
            f"{', '.join(names)} | {unwise.why} | {unwise.instead}"
            f" | {sources.number(unwise.source)}",
        )
        for unwise, names in _presets_of_unwise().items()
    )
    yield ""


def _values(unwise: BadSetting) -> str:
    return ", ".join(f"`{value}`" for value in unwise.values)


def _presets_of_unwise() -> dict[BadSetting, list[PresetName]]:
    """Return each variable with the presets that warn of it."""
    presets: dict[BadSetting, list[PresetName]] = {}
    for preset in PRESETS.values():
        for setting in preset.unwise:
            presets.setdefault(setting, []).append(preset.name)
    return presets


if __name__ == "__main__":
    main()
