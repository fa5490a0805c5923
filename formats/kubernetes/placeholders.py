"""Placeholders of envsubst in a manifest: `${NAME}`, filled in before anything else is read.

People write `envsubst < job.yaml-template | kubectl apply -f -`. gpuctl fills in the same places
from `--set` and from the environment. A script of a shell has `${NAME}` too, which the shell
expands on the node: there only names are filled in that `--set` gives, or that are placeholders
elsewhere in the manifest. If there are such, other names of a script are taken from the environment
too, or a warning names them. Secrets are never taken from the environment into a manifest, because
its text is printed.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from config.command_text import command_text
from config.loading.overrides import Substitutions
from config.mistakes import Mistake, Path, path_text
from config.sensitive import is_secret_name, may_leave_as_text
from config.yaml.marked_yaml import TEXT, Document, document_of

_PLACEHOLDER = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SHELL = re.compile(r"(.*/)?(ba|da|k|z|a)?sh|-[a-z]*c")
# What gpuctl ignores with a warning (manifest.py). `resources`, `nodeSelector` and `affinity` are
# not among them: `gpuctl up --for` chooses a type by them (requirements.py).
_IGNORED = frozenset(
    (
        "imagePullSecrets",
        "nodeName",
        "resourceClaims",
        "securityContext",
        "tolerations",
        "topologySpreadConstraints",
        "volumeMounts",
        "volumes",
    )
)
# Read by `gpuctl up --for` alone: filled in from the environment, and no mistake without a value.
_OPTIONAL = frozenset(("nodeSelector", "affinity"))
_IGNORED_METADATA = (("metadata", "annotations"), ("metadata", "labels"), ("metadata", "namespace"))
_Place = Literal["field", "words", "script"]
"""The place of a text: words are a container's, without a shell among them or with one."""
# A shell on a node has these too, and means its own.
_OF_EVERY_SHELL = frozenset(
    ("HOME", "PATH", "PWD", "USER", "HOSTNAME", "SHELL", "LD_LIBRARY_PATH", "PYTHONPATH")
)


# Set by the script, by a launcher, by an operator or by gpuctl.
_SET_IN_SCRIPT = re.compile(
    r"\b([A-Za-z_]\w*)=|\b(?:for|read(?: -\w+)*|select|local|declare(?: -\w+)*)\s+([A-Za-z_]\w*)"
)
_OF_NODES = re.compile(
    r"(?:PET|OMPI|PMI|PMIX|MPI|VC|VK|JAX|DMLC|GPUCTL|DSTACK|CUDA|NVIDIA|KUBERNETES|BASH|HOROVOD|K)_.*"
    r"|(?:LOCAL_|GROUP_|NODE_)?(?:RANK|WORLD_SIZE)|MASTER_(?:ADDR|PORT)|JOB_COMPLETION_INDEX"
    r"|RANDOM|SECONDS|EUID|UID|PPID|OLDPWD|IFS|LANG|TMPDIR|TERM|SHLVL|LINENO|POD_\w+|MPI_HOST"
)


def fill_placeholders(
    document: Document, given: Substitutions
) -> tuple[Document, list[Mistake], set[str]]:
    """Return the document with values for its placeholders, mistakes, and the placeholders' names.

    A placeholder without a value is a mistake. Raises InputError for a wrong `--set`.
    """
    values = given.values()
    texts = list(_texts(document.root, ()))
    required = {name for text in texts for name in text.required | text.optional}
    # envsubst fills in scripts too: one in a file with other placeholders is part of the template.
    braced = {name for text in texts for name in text.unset} if required else set()
    braced -= _variables(document.root)
    known = {name: os.environ[name] for name in required | braced if _is_taken(name)} | dict(values)
    names = {name for text in texts for name in text.names}
    nodes = {id(text.node): text for text in texts}
    filled = document_of(_with_values(document.root, nodes, known))
    filled = replace(filled, begins=document.begins, beside=document.beside)
    mistakes = [*_unfilled(texts, known), *_unfilled_scripts(texts, braced - known.keys())]
    return filled, mistakes, names


@dataclass(frozen=True)
class _Text:
    """A text with placeholders: their names, and those of them that need a value.

    `unset` are names in a script that it does not set. `is_field`: the value decides its type,
    since it is no word or variable of a container.
    """

    node: ScalarNode
    at: Path
    names: frozenset[str]
    required: frozenset[str]
    is_field: bool
    optional: frozenset[str] = frozenset()
    unset: frozenset[str] = frozenset()


def _texts(node: Node, at: Path, place: _Place = "field") -> Iterator[_Text]:
    """Yield the texts with placeholders below a node."""
    if isinstance(node, MappingNode):
        entries = {k.value: value for k, value in node.value if isinstance(k, ScalarNode)}
        words: _Place = "script" if _is_script(entries) else "words"
        for key, value in entries.items():
            name = getattr(entries.get("name"), "value", "")
            if not (key == "value" and is_own_secret(str(name), value.value)):
                inside = words if key in ("command", "args") else "field"
                yield from _texts(value, (*at, key), inside)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            yield from _texts(value, (*at, index), place)
    elif isinstance(node, ScalarNode) and "$" in node.value:
        yield from _text(node, at, place)


def _text(node: ScalarNode, at: Path, place: _Place) -> Iterator[_Text]:
    matches = list(_PLACEHOLDER.finditer(node.value))
    names = frozenset(match[1] or match[2] for match in matches)
    if place == "script" or at[:2] in _IGNORED_METADATA or not _IGNORED.isdisjoint(at):
        required = frozenset[str]()
    elif place == "words" or at[-1:] == ("value",):
        # Kubernetes gives programs `$NAME` as it is written.
        required = frozenset(match[1] for match in matches if match[1]) - _OF_EVERY_SHELL
    else:
        required = names - _OF_EVERY_SHELL
    optional = unset = frozenset[str]()
    if not _OPTIONAL.isdisjoint(at):
        required, optional = optional, required
    if place == "script":
        own = {name for groups in _SET_IN_SCRIPT.findall(node.value) for name in groups}
        braced = frozenset(match[1] for match in matches if match[1])
        unset = frozenset(n for n in braced - own if not _OF_NODES.fullmatch(n)) - _OF_EVERY_SHELL
    if names:
        is_field = place == "field" and at[-1:] != ("value",)
        yield _Text(node, at, names, required, is_field, optional, unset)


def _is_script(entries: Mapping[str, Node]) -> bool:
    """Return whether a container's words call a shell."""
    lists = (entries.get(key) for key in ("command", "args"))
    words = [word for node in lists if isinstance(node, SequenceNode) for word in node.value]
    return any(_SHELL.fullmatch(str(word.value)) for word in words)


def is_own_secret(name: str, value: Any) -> bool:
    """Return whether an entry of `env` is a secret with its own name: HF_TOKEN=${HF_TOKEN}."""
    return value == f"${{{name}}}" and is_secret_name(name)


def _is_taken(name: str) -> bool:
    return name in os.environ and may_leave_as_text(name, os.environ[name])


def _unfilled(texts: list[_Text], known: Mapping[str, str]) -> Iterator[Mistake]:
    for text in texts:
        missing = sorted(text.required - known.keys())
        if not missing:
            continue
        name = missing[0]
        message = f"'{path_text(text.at)}' has envsubst's placeholder ${{{name}}}, without a value"
        hint = (
            f"add {command_text('--set {}=VALUE', name)}, or"
            f" {command_text('export {}=VALUE', name)} before"
        )
        if is_secret_name(name) or name in os.environ:
            hint = (
                f"take the secret by `valueFrom: {{secretKeyRef: {{name: x, key: {name}}}}}`,"
                f" or add {command_text('--set {}=VALUE', name)}"
            )
        yield Mistake("E227", message, hint, text.at)


def _unfilled_scripts(texts: list[_Text], missing: set[str]) -> Iterator[Mistake]:
    """Warn of placeholders in scripts that nothing fills in."""
    for text in texts:
        names = sorted(text.unset & missing)
        if names:
            listed = ", ".join(f"${{{name}}}" for name in names[:3])
            more = f" and {len(names) - 3} more" if names[3:] else ""
            message = f"'{path_text(text.at)}' has {listed}{more}, which nothing here sets"
            hint = f"add {command_text('--set {}=VALUE', names[0])}, unless it is set on the nodes"
            yield Mistake("W212", message, hint, text.at)


def _variables(node: Node) -> set[str]:
    """Return the names of all variables that containers of the manifest have."""
    if isinstance(node, SequenceNode):
        return {name for value in node.value for name in _variables(value)}
    if not isinstance(node, MappingNode):
        return set()
    entries = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
    names = {name for value in entries.values() for name in _variables(value)}
    if isinstance(entries.get("name"), ScalarNode) and {"value", "valueFrom"} & entries.keys():
        names.add(str(entries["name"].value))
    return names


def _with_values(node: Node, texts: Mapping[int, _Text], known: Mapping[str, str]) -> Node:
    """Return the tree with the values; each node keeps its position."""
    marks = node.start_mark, node.end_mark
    if isinstance(node, MappingNode):
        pairs = [(key, _with_values(value, texts, known)) for key, value in node.value]
        return MappingNode(node.tag, pairs, *marks)
    if isinstance(node, SequenceNode):
        return SequenceNode(node.tag, [_with_values(v, texts, known) for v in node.value], *marks)
    text = texts.get(id(node))
    if text is None:
        return node
    values = {name: known[name] for name in text.names if name in known}

    def value(match: re.Match[str]) -> str:
        return values.get(match[1] or match[2], match[0])

    filled = _PLACEHOLDER.sub(value, node.value)
    return ScalarNode(node.tag if text.is_field else TEXT, filled, *marks)
