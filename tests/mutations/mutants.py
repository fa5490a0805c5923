"""Single changes to a module's code, each of which a test of the module should notice."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
_SHOWN = 60  # characters before and behind the place where a line differs


@dataclass(frozen=True)
class Mutant:
    """A module's text with one change. `before` and `after` show the line that differs."""

    path: str
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True)
class Change:
    """A mutant before it is made: what stands in the place of which node."""

    module: "Module"
    place: "_Place"
    changed: ast.AST

    def mutant(self) -> Mutant | None:
        """Return the mutant, None where the module's text stays the same."""
        parent, field, index = self.place.parent, self.place.field, self.place.index
        if index is None:
            setattr(parent, field, self.changed)
        else:
            getattr(parent, field)[index] = self.changed
        try:
            text = ast.unparse(ast.fix_missing_locations(self.module.tree))
        finally:
            if index is None:
                setattr(parent, field, self.place.node)
            else:
                getattr(parent, field)[index] = self.place.node
        if text == self.module.text:
            return None
        before, after = _difference(self.module.text, text)
        return Mutant(self.module.path, self.place.line, before, after, text)


class Module:
    """A module's syntax tree and its text in ast's own layout."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.tree = path, ast.parse(source)
        self.text = ast.unparse(self.tree)

    def changes(self) -> list[Change]:
        """Return every change in source order."""
        return [
            Change(self, place, changed)
            for place in _places(self.tree)
            for changed in _changes(place.node)
        ]


@dataclass(frozen=True)
class _Place:
    """A node of the tree, and where its parent has it: a field, and the position in a list."""

    node: ast.AST
    line: int
    parent: ast.AST
    field: str
    index: int | None


def _places(node: ast.AST, line: int = 1) -> Iterator[_Place]:
    """Find all nodes that run: no docstrings, annotations, imports or decorators."""
    for field, value in ast.iter_fields(node):
        if _is_silent(node, field):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not _is_skipped(child):
                at = getattr(child, "lineno", line)
                yield _Place(child, at, node, field, index if isinstance(value, list) else None)
                yield from _places(child, at)


def _is_silent(node: ast.AST, field: str) -> bool:
    if field in ("annotation", "returns", "decorator_list", "bases", "ctx"):
        return True
    # The pieces of an f-string are mutated with the whole, a Literal's choices are types.
    if isinstance(node, ast.JoinedStr):
        return False
    return isinstance(node, ast.Subscript) and field == "slice" and _is_type(node.value)


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("Literal", "Annotated", "Callable", "dict")


def _is_skipped(node: ast.AST) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Assign) and "TypeVar" in ast.unparse(node.value):
        return True
    # A docstring, or the text below a constant.
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the node's place."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node)
    elif isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield ast.comprehension(node.target, node.iter, [], node.is_async)


def _of_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    """A condition the other way round, nothing returned, nothing done."""
    match node:
        # What compares or negates is changed itself.
        case ast.If() if not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    """Another comparison, another operator, a part of a condition less."""
    match node:
        case ast.Compare(ops=[op, *others]) if type(op) in _COMPARED:
            yield ast.Compare(node.left, [_COMPARED[type(op)](), *others], node.comparators)
        case ast.BinOp() if type(node.op) in _COMPUTED:
            yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
            for index in range(len(node.values)):
                rest = [*node.values[:index], *node.values[index + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)


def _of_constant(node: ast.Constant) -> Iterator[ast.Constant]:
    """The next number, the other truth, a letter more."""
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant(f"{value}X" if value else "X")


def _difference(before: str, after: str) -> tuple[str, str]:
    """Return the first line that differs, as it was and as it is."""
    pairs = zip_longest(before.splitlines(), after.splitlines(), fillvalue="")
    old, new = next((one, other) for one, other in pairs if one != other)
    old, new = old.strip(), new.strip()
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    start = max(0, same - _SHOWN)
    return _cut(old, start), _cut(new, start)


def _cut(line: str, start: int) -> str:
    """Return at most so much of a line as shows where it differs: tables are one line."""
    end = start + 2 * _SHOWN
    return "…" * bool(start) + line[start:end] + "…" * (end < len(line))
