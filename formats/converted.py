"""A run file made of a manifest's values, each of which keeps its position in the manifest.

The run file is a tree of YAML nodes with the manifest's marks, as in config/yaml/marked_yaml.py, so
a diagnostic about the run file names the line of the manifest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

from config.mistakes import Path
from config.yaml.composing import PLAIN
from config.yaml.marked_yaml import TEXT, Document, document_of


@dataclass(frozen=True)
class Placed:
    """A value of the run file, and the path in the manifest from which it comes."""

    value: Any
    at: Path


def document_with(data: Mapping[str, Any], manifest: Document) -> Document:
    """Return the run file with this data; an unplaced value has the position of its parent."""
    document = document_of(_tree(data, manifest.root, manifest))
    return replace(document, sources=dict(_sources(data, ())))


def _sources(value: Any, at: Path) -> Iterator[tuple[Path, Path]]:
    if isinstance(value, Placed):
        yield at, value.at
        value = value.value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _sources(inner, (*at, key))


def _tree(value: Any, place: Node, manifest: Document) -> Node:
    marks = place.start_mark, place.end_mark
    if isinstance(value, Placed):
        return _tree(value.value, manifest.node(value.at), manifest)
    if isinstance(value, Mapping):
        entries = [_entry(key, inner, place, manifest) for key, inner in value.items()]
        return MappingNode(BaseResolver.DEFAULT_MAPPING_TAG, entries, *marks)
    if isinstance(value, (list, tuple)):
        items = [_tree(inner, place, manifest) for inner in value]
        return SequenceNode(BaseResolver.DEFAULT_SEQUENCE_TAG, items, *marks)
    return ScalarNode(TEXT if isinstance(value, str) else PLAIN, str(value), *marks)


def _entry(key: str, value: Any, place: Node, manifest: Document) -> tuple[Node, Node]:
    node = _tree(value, place, manifest)
    return ScalarNode(TEXT, key, node.start_mark, node.end_mark), node
