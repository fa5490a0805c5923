"""The tables of network presets for docs/rdma.md, from the data that runs use."""

from collections.abc import Iterator

from engine.network.settings import BAD_SETTINGS, HCAS, INTERFACE, SETTINGS

_TITLES = {
    "efa": "EFA",
    "infiniband": "InfiniBand",
    "roce": "RoCE",
    "hcc": "TI-ONE's HCC",
    "tcp": "only sockets",
}


def presets_reference() -> str:
    """Return a table per preset with variables, then one of variables that users should not set."""
    return "\n".join([*_presets(), *_unwise()]) + "\n"


def _presets() -> Iterator[str]:
    for name, title in _TITLES.items():
        yield f"## `network: {name}`: {title}\n"
        yield "| variable | value | why | versions | source |"
        yield "| --- | --- | --- | --- | --- |"
        for one in SETTINGS[name]:
            where = f"; only on {', '.join(one.families)}" if one.families else ""
            value = one.value if one.value in (HCAS, INTERFACE) else f"`{one.value}`"
            why = f"{one.reason}{where} | {one.versions} | {one.source}"
            yield f"| `{one.name}` | {value} | {why} |"
        yield ""


def _unwise() -> Iterator[str]:
    yield "## Variables that cause a warning\n"
    yield "| variable | with | it | instead | source |"
    yield "| --- | --- | --- | --- | --- |"
    for one in BAD_SETTINGS:
        values = ", ".join(f"`{value}`" for value in one.values)
        name = f"`{one.name}`" + (f" = {values}" if values else "")
        yield f"| {name} | {', '.join(one.presets)} | {one.why} | {one.instead} | {one.source} |"
