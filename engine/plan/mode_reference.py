"""The generated parts of docs/look-up/modes.md and docs/look-up/network.md.

They are rules, environment and network presets.

`python -m engine.plan.mode_reference` writes them from the tables that runs use.
"""

from collections.abc import Iterable, Iterator

from config.generated_page import GeneratedPage
from config.run.launchers import OPEN_MPI_INTERFACES
from config.run.owned_variables import OWNED, Owned
from config.run.run_file import RUN_TYPES, PresetName
from engine.plan.network.presets import MAY_FORK, PRESETS
from engine.plan.network.settings import HCAS, INTERFACE, BadSetting
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


def presets_reference() -> str:
    """Return a table per preset with variables, then one of variables that users should not set."""
    return "\n".join([*_presets(), *_unwise()]) + "\n"


def _presets() -> Iterator[str]:
    for preset in PRESETS.values():
        if not preset.settings:
            continue
        yield f"## `network: {preset.name}`: {preset.title}\n"
        yield "| variable | value | why | versions | source |"
        yield "| --- | --- | --- | --- | --- |"
        for setting in preset.settings:
            where = f"; only on {', '.join(setting.families)}" if setting.families else ""
            where += f"; {MAY_FORK}" if setting.is_for_forks else ""
            value = setting.value if setting.value in (HCAS, INTERFACE) else f"`{setting.value}`"
            why = f"{setting.reason}{where} | {setting.versions} | {setting.source}"
            yield f"| `{setting.name}` | {value} | {why} |"
        yield ""


def _unwise() -> Iterator[str]:
    yield "## Variables that cause a warning\n"
    yield "| variable | with | it | instead | source |"
    yield "| --- | --- | --- | --- | --- |"
    for unwise, names in _presets_of_unwise().items():
        values = ", ".join(f"`{value}`" for value in unwise.values)
        name = f"`{unwise.name}`" + (f" = {values}" if values else "")
        yield f"| {name} | {', '.join(names)} | {unwise.why} | {unwise.instead} | {unwise.source} |"


def _presets_of_unwise() -> dict[BadSetting, list[PresetName]]:
    """Return each variable with the presets that warn of it."""
    presets: dict[BadSetting, list[PresetName]] = {}
    for preset in PRESETS.values():
        for setting in preset.unwise:
            presets.setdefault(setting, []).append(preset.name)
    return presets


if __name__ == "__main__":
    main()
