"""Merge one YAML document over another.

The merge works on YAML nodes and not on data, so every value keeps the file, line and column in
which it was written, and a diagnostic about the result names the right file.
"""

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from config.yaml.marked_yaml import TEXT, Document, document_of, is_null

_MAPPING = "tag:yaml.org,2002:map"


def merge_documents(over: Document, base: Document) -> Document:
    """Return `base` with the values of `over`: mappings merge by key, other values replace.

    A null removes the value of `base`, as in a JSON merge patch (RFC 7396). `env` counts as a
    mapping even if it is a list of NAME=value. The keys of `base` come first; the result has the
    position of `over`.
    """
    return document_of(_merge_nodes(over.root, base.root))


def _merge_nodes(over: Node, base: Node) -> Node:
    if not (isinstance(over, MappingNode) and isinstance(base, MappingNode)):
        return over
    merged = _entries(base)
    for name, (key, value) in _entries(over).items():
        if name not in merged:
            merged[name] = key, value
        elif is_null(value):
            del merged[name]
        elif name == "env":
            merged[name] = key, _merge_nodes(_as_mapping(value), _as_mapping(merged[name][1]))
        else:
            merged[name] = key, _merge_nodes(value, merged[name][1])
    return MappingNode(over.tag, [*merged.values()], over.start_mark, over.end_mark)


def _entries(node: MappingNode) -> dict[str, tuple[Node, Node]]:
    """Return keys and values by name; of a repeated key the first, as everywhere else."""
    entries: dict[str, tuple[Node, Node]] = {}
    for key, value in node.value:
        if isinstance(key, ScalarNode):
            entries.setdefault(key.value, (key, value))
    return entries


def _as_mapping(node: Node) -> Node:
    """Return a list of NAME=value and NAME as a mapping; any other node unchanged."""
    if not isinstance(node, SequenceNode):
        return node
    entries: dict[str, tuple[Node, Node]] = {}
    for item in node.value:
        if not isinstance(item, ScalarNode):
            return node
        name, equals, text = item.value.partition("=")
        is_secret = not equals and name.isascii() and name.isidentifier()
        if name in entries or not (equals or is_secret):
            return node
        marks = item.start_mark, item.end_mark
        value: Node = ScalarNode(TEXT, text, *marks)
        if is_secret:
            pair = ScalarNode(TEXT, "secret", *marks), ScalarNode(TEXT, name, *marks)
            value = MappingNode(_MAPPING, [pair], *marks)
        entries[name] = ScalarNode(TEXT, name, *marks), value
    return MappingNode(node.tag, [*entries.values()], node.start_mark, node.end_mark)
