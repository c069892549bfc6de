"""All mutants of a module: its source with one small mistake each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

OTHER_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OPPOSITES = [
    ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("zeros", "ones"),
    ("sum", "mean"), ("std", "var"), ("floor", "ceil"), ("exp", "expm1"),
]  # fmt: skip
OTHER_NAMES = dict(OPPOSITES) | {second: first for first, second in OPPOSITES}
NOT_MUTATED = ("annotation", "returns", "decorator_list", "exc", "msg")
"""Fields that change no number: types, and what an error says."""
COMMUTATIVE = ("min", "max", "minimum", "maximum")
SAY_LITTLE = (ast.Slice, ast.UnaryOp, ast.Tuple, ast.Attribute)
"""Expressions too small to name a change by: what stands around them does."""
LONG, AROUND = 90, 25  # characters of a change that is shown


@dataclass(frozen=True)
class Mutant:
    """function: where it is, or what a mutant of `meaning.toml` means. before and after: the changed
    expression or statement with what stands around it.
    """

    path: str
    function: str
    before: str
    after: str
    source: str

    @property
    def change(self) -> str:
        """What an explanation names it by: no line number, which moves."""
        return f"{self.path} {self.function}: {self.before} => {self.after}"


@dataclass(frozen=True)
class Place:
    """Where a node stands; `around` is the smallest telling expression that holds it, or its
    statement."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    around: ast.AST

    def put(self, node: ast.AST) -> None:
        """This node in the place of what stands there."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutant_by_replacing(path: str, source: str, before: str, after: str, meaning: str) -> Mutant:
    """The module with `after` in the place of `before`, named by what that means. Raises `ValueError`
    unless `before` occurs exactly once.
    """
    count = source.count(before)
    if count != 1:
        raise ValueError(
            f"{path}: the text of the mutant {meaning!r} occurs {count} times, not once"
        )
    lines = (" ".join(text.split()) for text in (before, after))
    change = _without_what_is_equal(*lines)
    return Mutant(path, meaning, *change, source.replace(before, after))


def mutants_of(path: str, source: str) -> list[Mutant]:
    """In the order of the module's text."""
    tree = ast.parse(source)
    found = []
    for place in list(_places(tree, "", tree)):
        before = _first_line(place.around)
        for other in _alternatives(place.node):
            place.put(other)
            after = _first_line(other if place.around is place.node else place.around)
            change = _without_what_is_equal(before, after)
            found.append(Mutant(path, place.function or "module", *change, ast.unparse(tree)))
        place.put(place.node)
    return found


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]


def _without_what_is_equal(before: str, after: str) -> tuple[str, str]:
    """Long lines cut down to what differs and some characters around it."""
    if max(len(before), len(after)) <= LONG:
        return before, after
    start = _length_of_equal_start(before, after)
    end = _length_of_equal_start(before[start:][::-1], after[start:][::-1])
    first = start - AROUND if start > AROUND else 0
    last = max(end - AROUND, 0)
    first_mark, last_mark = "…" if first else "", "…" if last else ""
    return tuple(  # type: ignore[return-value]
        f"{first_mark}{text[first : len(text) - last]}{last_mark}" for text in (before, after)
    )


def _length_of_equal_start(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def _places(parent: ast.AST, function: str, around: ast.AST) -> Iterator[Place]:
    if isinstance(parent, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{parent.name}".lstrip(".")
    if isinstance(parent, ast.expr | ast.stmt) and not isinstance(parent, SAY_LITTLE):
        around = parent
    for field, value in ast.iter_fields(parent):
        if field in NOT_MUTATED:
            continue
        nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, node in nodes:
            if not isinstance(node, ast.AST) or _is_text(node):
                continue
            own = node if isinstance(node, ast.stmt) else around
            yield Place(node, parent, field, index, function, own)
            yield from _places(node, function, around)


def _is_text(node: ast.AST) -> bool:
    """A docstring, an import, a message: nothing in it is computed."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr)


def _alternatives(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.operator() | ast.cmpop() | ast.boolop():
            yield from (other() for other in OTHER_OPERATORS.get(type(node), ()))
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            others = dict.fromkeys((value + 1, value - 1, value * 2))
            yield from (ast.Constant(other) for other in others if other != value)
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield _changed(node, lower=None)
            if upper is not None:
                yield _changed(node, upper=None)
        case ast.Call():
            yield from _other_functions(node)
            yield from _other_arguments(node)
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # which have their own
                yield _changed(node, test=ast.UnaryOp(ast.Not(), node.test))
            if isinstance(node, ast.If):
                yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Tuple | ast.Dict):
            yield ast.Return(ast.UnaryOp(ast.USub(), value))
        case ast.stmt() if _can_be_left_out(node):
            yield ast.Pass()


def _changed(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _other_functions(call: ast.Call) -> Iterator[ast.AST]:
    match call.func:
        case ast.Name(id=name) if name in OTHER_NAMES:
            yield _changed(call, func=ast.Name(OTHER_NAMES[name]))
        case ast.Attribute(attr=name) if name in OTHER_NAMES:
            yield _changed(call, func=_changed(call.func, attr=OTHER_NAMES[name]))


def _other_arguments(call: ast.Call) -> Iterator[ast.AST]:
    """Two neighbours swapped, where their order matters; a named one left out, so that its default
    holds."""
    name = ast.unparse(call.func).rpartition(".")[2]
    for i in range(len(call.args) - 1 if name not in COMMUTATIVE else 0):
        first, second = call.args[i : i + 2]
        if ast.unparse(first) == ast.unparse(second):
            continue
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            yield _changed(call, args=[*call.args[:i], second, first, *call.args[i + 2 :]])
    for i, keyword in enumerate(call.keywords):
        if keyword.arg is not None:
            yield _changed(call, keywords=call.keywords[:i] + call.keywords[i + 1 :])


def _can_be_left_out(statement: ast.stmt) -> bool:
    """Without a variable's first assignment nothing would run: such a mutant asks nothing."""
    match statement:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(value))
        case ast.AugAssign() | ast.Expr() | ast.Raise() | ast.For():
            return True
    return False
