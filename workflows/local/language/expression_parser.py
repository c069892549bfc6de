"""Parses the expressions in `{{= … }}`, `retryStrategy.expression` and `depends`: the part of
expr-lang that Argo's manifests use.

Precedences and literals follow expr 1.17 (github.com/expr-lang/expr, `parser/operator`,
`parser/lexer`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from workflows.local.errors import TagError

BINARY = {
    "|": 0, "or": 10, "||": 10, "and": 15, "&&": 15,
    "==": 20, "!=": 20, "<": 20, ">": 20, ">=": 20, "<=": 20, "in": 20, "matches": 20, "contains": 20, "startsWith": 20, "endsWith": 20,
    "..": 25, "+": 30, "-": 30, "*": 60, "/": 60, "%": 60, "**": 100, "^": 100, "??": 500,
}  # fmt: skip
UNARY = {"not": 50, "!": 50, "-": 90, "+": 90}
WORD_OPERATORS = {"or", "and", "in", "matches", "contains", "startsWith", "endsWith", "not"}
TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:\d[\d_]*)?\.?\d[\d_]*(?:[eE][+-]?\d+)?(?!\.\d))
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    | (?P<name>[$A-Za-z_\u0080-\uffff][$\w]*)
    | (?P<operator>\?\?|\?\.|\*\*|\.\.|==|!=|<=|>=|&&|\|\||[-+*/%^<>!?:.,()\[\]{}\#|;=])
    )""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class ExpressionError(TagError):
    """An expression that cannot be parsed or evaluated. `column` counts from 1."""

    def __init__(self, problem: str, column: int = 1) -> None:
        super().__init__(problem)
        self.problem = problem
        self.column = column

    def shown(self, source: str) -> str:
        """Expr's message: the problem, the place, the source with a caret below."""
        return f"{self.problem} (1:{self.column})\n | {source}\n | {'.' * (self.column - 1)}^"


@dataclass(frozen=True)
class Token:
    """kind: number, string, name, operator or end; value: read; column counts from 1."""

    kind: str
    value: Any
    column: int


@dataclass(frozen=True)
class Node:
    """kind: literal, name, member, slice, call, unary, binary, conditional, list, map, pointer,
    closure.
    """

    kind: str
    column: int
    value: Any = None
    children: tuple[Node, ...] = field(default=())
    optional: bool = False


def parse(source: str) -> Node:
    """The syntax tree of an expression; raises `ExpressionError`."""
    parser = _Parser(_tokens(source))
    tree = parser.expression(0)
    if parser.token.kind != "end":
        raise ExpressionError(f"unexpected token {_shown(parser.token)}", parser.token.column)
    return tree


def _tokens(source: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while source[position:].strip():
        matched = TOKEN.match(source, position)
        if matched is None or matched.lastgroup is None:
            column = position + len(source[position:]) - len(source[position:].lstrip()) + 1
            character = source[column - 1]
            if character in "'\"`":
                raise ExpressionError("literal not terminated", column)
            raise ExpressionError(f"unrecognized character: {character!a}", column)
        kind = matched.lastgroup
        text = matched[kind]
        start = matched.start(kind) + 1
        position = matched.end()
        value: Any = text
        if kind == "number":
            value, position = _number(source, text, start, matched.start(kind))
        elif kind == "string":
            value = _string(text)
        elif kind == "name" and text in WORD_OPERATORS:
            kind = "operator"
        tokens.append(Token(kind, value, start))
    # Expr places the end at the last character.
    return [*tokens, Token("end", "", max(1, len(source)))]


def _number(source: str, text: str, column: int, start: int) -> tuple[Any, int]:
    # 1..3 is a range, not 1. and .3
    if ".." in source[start : start + len(text) + 1]:
        text = text.split(".")[0]
    digits = text.replace("_", "")
    try:
        prefixed = digits[:2].lower() in ("0x", "0o", "0b")
        value: int | float
        if prefixed:
            value = int(digits, 0)
        elif re.search(r"[.eE]", digits):
            value = float(digits)
        else:
            value = int(digits)
    except ValueError:
        raise ExpressionError(f"bad number syntax: {text!r}", column) from None
    return value, start + len(text)


def _string(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]
    return ESCAPE.sub(lambda matched: _unescaped(matched[1]), text[1:-1])


def _unescaped(escape: str) -> str:
    if len(escape) > 1 and escape.isdigit():
        return chr(int(escape, 8))
    if len(escape) > 1:
        # \U takes eight digits; `chr` raises above the last code point of Unicode.
        return chr(min(int(escape[1:], 16), 0x10FFFF))
    return SIMPLE_ESCAPES.get(escape, escape)


def _shown(token: Token) -> str:
    if token.kind == "end":
        return "EOF"
    return f'{token.kind.capitalize()}("{token.value}")'


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def _next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.position += 1
        return token

    def _is(self, *operators: str) -> bool:
        return self.token.kind == "operator" and self.token.value in operators

    def _expect(self, operator: str) -> Token:
        if not self._is(operator):
            raise ExpressionError(f"unexpected token {_shown(self.token)}", self.token.column)
        return self._next()

    def expression(self, precedence: int) -> Node:
        left = self._unary()
        while (binary := self._binary_operator(precedence)) is not None:
            operator, negated, column = binary
            if operator == "|":
                left = self._piped(left)
                continue
            power = BINARY[operator]
            # Powers group to the right, all other operators to the left.
            if operator not in ("**", "^"):
                power += 1
            right = self.expression(power)
            left = Node("binary", column, operator, (left, right))
            if negated:
                left = Node("unary", column, "not", (left,))
        if precedence == 0:
            return self._conditional(left)
        return left

    def _piped(self, value: Node) -> Node:
        """`value | name(…)`: a call whose first argument is the value."""
        name = self._next()
        if name.kind != "name":
            raise ExpressionError(f"unexpected token {_shown(name)}", name.column)
        self._expect("(")
        called = Node("name", name.column, name.value)
        return self._postfix(Node("call", name.column, None, (called, value, *self._sequence(")"))))

    def _binary_operator(self, precedence: int) -> tuple[str, bool, int] | None:
        """The operator, whether `not` stands before it (`not in`), and its column. Consumes nothing
        if it binds too loosely.
        """
        token = self.token
        following = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        operator = token.value
        # `not` may stand before every operator that binds as tightly as `in`: `a not matches b`.
        negated = (
            self._is("not")
            and following.kind == "operator"
            and BINARY.get(str(following.value), 0) == BINARY["in"]
        )
        if negated:
            operator = following.value
        if token.kind != "operator" or operator not in BINARY or BINARY[operator] < precedence:
            return None
        self.position += 1
        if negated:
            self.position += 1
        return operator, negated, token.column

    def _conditional(self, condition: Node) -> Node:
        if not self._is("?"):
            return condition
        column = self._next().column
        yes = self.expression(0)
        self._expect(":")
        return Node("conditional", column, None, (condition, yes, self.expression(0)))

    def _unary(self) -> Node:
        if self.token.kind == "operator" and self.token.value in UNARY:
            token = self._next()
            return self._postfix(
                Node("unary", token.column, token.value, (self.expression(UNARY[token.value]),))
            )
        if self._is("("):
            self._next()
            inner = self.expression(0)
            self._expect(")")
            return self._postfix(inner)
        return self._postfix(self._primary())

    def _primary(self) -> Node:
        token = self._next()
        if token.kind in ("number", "string"):
            return Node("literal", token.column, token.value)
        if token.kind == "name":
            if token.value in ("true", "false", "nil"):
                return Node(
                    "literal",
                    token.column,
                    {"true": True, "false": False, "nil": None}[token.value],
                )
            return Node("name", token.column, token.value)
        if token.kind == "operator" and token.value == "[":
            return Node("list", token.column, None, self._sequence("]"))
        if token.kind == "operator" and token.value == "{":
            return self._map(token.column)
        if token.kind == "operator" and token.value in ("#", "."):
            return self._pointer(token)
        raise ExpressionError(f"unexpected token {_shown(token)}", token.column)

    def _pointer(self, token: Token) -> Node:
        if token.value == "#":
            named = self.token.kind == "name" and self.token.column == token.column + 1
            return Node("pointer", token.column, self._next().value if named else "")
        pointer = Node("pointer", token.column, "")
        return Node(
            "member",
            token.column,
            None,
            (pointer, Node("literal", token.column, self._next().value)),
        )

    def _sequence(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._is(end):
            # Only an argument, never an element of a list, may be a predicate in braces.
            if end == ")":
                items.append(self._closure())
            else:
                items.append(self.expression(0))
            if not self._is(end):
                self._expect(",")
        self._next()
        return tuple(items)

    def _closure(self) -> Node:
        """An argument: `{# > 1}` is a predicate, unless it can be read as a map."""
        if not self._is("{"):
            return self.expression(0)
        start = self.position
        try:
            return self.expression(0)
        except ExpressionError:
            self.position = start
        column = self._next().column
        body = self.expression(0)
        self._expect("}")
        return Node("closure", column, None, (body,))

    def _map(self, column: int) -> Node:
        pairs: list[Node] = []
        while not self._is("}"):
            key = self._next()
            if key.kind not in ("name", "string", "number"):
                raise ExpressionError(
                    "a map key must be a quoted string, a number, a identifier", key.column
                )
            self._expect(":")
            pairs += [Node("literal", key.column, str(key.value)), self.expression(0)]
            if not self._is("}"):
                self._expect(",")
        self._next()
        return Node("map", column, None, tuple(pairs))

    def _postfix(self, node: Node) -> Node:
        while self._is(".", "?.", "[", "("):
            token = self._next()
            if token.value == "(":
                node = Node("call", node.column, None, (node, *self._sequence(")")))
            elif token.value == "[":
                node = self._index(node, token.column)
            else:
                name = self._next()
                if name.kind not in ("name", "operator") or not str(name.value).isidentifier():
                    raise ExpressionError(f"unexpected token {_shown(name)}", name.column)
                node = Node(
                    "member",
                    name.column,
                    None,
                    (node, Node("literal", name.column, name.value)),
                    optional=token.value == "?.",
                )
        return node

    def _index(self, node: Node, column: int) -> Node:
        start = self._bound(":", column)
        if not self._is(":"):
            self._expect("]")
            return Node("member", column, None, (node, start))
        self._next()
        end = self._bound("]", column)
        self._expect("]")
        return Node("slice", column, None, (node, start, end))

    def _bound(self, following: str, column: int) -> Node:
        """A bound of a slice, or nil if it is left out and the `following` sign comes at once."""
        if self._is(following):
            return Node("literal", column)
        return self.expression(0)
