"""The tables of network presets for docs/look-up/network.md, from the data that runs use."""

from collections.abc import Iterator

from config.run.run_file import PresetName
from engine.plan.network.presets import MAY_FORK, PRESETS
from engine.plan.network.settings import HCAS, INTERFACE, BadSetting


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
