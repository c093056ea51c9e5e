"""How large a text an expression can make of the texts that it reads.

The bound is a sum: a number of bytes, and for each column that is read, so many times the length of its value. What the
expression says by itself is refused if it is too much; what depends on values is checked for each row, before the
expression is computed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from service.model.expressions.kinds import family
from service.model.expressions.tree import Case, Cast, ColumnValue, Constant, FunctionCall, Node, children
from service.model.patterns.replacing import Replacement, replacement
from service.model.schema.columns import Column

MB = 1 << 20
MOST_ADDED = MB
"""How many bytes an expression may make beyond those that it reads of a row."""
_MOST_TIMES = 20_000.0
# No number, date, time or uuid has more characters.
_PLAIN = 64.0
_DIGEST = 128.0
# How many times as long as its arguments a function's text can be. Upper and lower case are not counted: some letters
# become two or three, but not again.
_TIMES = {"hex": 2.0, "base64": 1.4, "translate": 4.0, "get_json_object": 6.0, "date_format": 16.0}
_DIGESTS = frozenset({"md5", "sha1", "sha2"})
_LONG = frozenset({"text", "binary", "list", "map", "struct"})


@dataclass(frozen=True, slots=True)
class Growth:
    """At most so many bytes: `plus`, and for each column so many times its length."""

    plus: float = 0.0
    times: Mapping[Column, float] = field(default_factory=dict)

    @property
    def is_endless(self) -> bool:
        """Whether it is too much, whatever the columns contain."""
        return not (self.plus <= MOST_ADDED and sum(self.times.values()) <= _MOST_TIMES)

    def multiplied(self, by: float, plus: float = 0.0) -> "Growth":
        return Growth(self.plus * by + plus, {column: times * by for column, times in self.times.items()})


def added(tree: Node) -> dict[Column, float]:
    """How many times the length of its value each column can add to what an expression, or a part of it, reads."""
    parts: dict[int, Growth] = {}

    def visit(node: Node) -> None:
        for part in children(node):
            visit(part)
        parts[id(node)] = growth_of(node, parts)

    visit(tree)
    return {column: times - 1 for column, times in largest(parts.values()).times.items() if times > 1}


def largest(growths: Iterable[Growth]) -> Growth:
    """At most as much as any of these."""
    return _merged(growths, max)


def growth_of(node: Node, parts: Mapping[int, Growth]) -> Growth:
    """The bound of a node's value, given those of its parts by their ids."""
    if isinstance(node, Constant):
        return Growth(float(len(str(node.value).encode(errors="replace"))) if node.value is not None else 0.0)
    if family(node.kind) not in _LONG:
        return Growth(_PLAIN)
    match node:
        case ColumnValue(column):
            return Growth(0.0, {column: 1.0})
        case Cast(value, _, _):
            return parts[id(value)]
        case Case(_, branches, otherwise, _):
            values = [value for _, value in branches] + ([] if otherwise is None else [otherwise])
            return largest(parts[id(value)] for value in values)
    arguments = [parts[id(argument)] for argument in node.arguments]
    return _of_call(node, arguments)


def _of_call(call: FunctionCall, arguments: list[Growth]) -> Growth:
    match call.name, call.arguments:
        case "concat" | "||", _:
            return _sum(arguments)
        case "concat_ws", (Constant(_, separator), *_):
            return _sum([*arguments[1:], Growth(float(len(str(separator).encode()) * len(arguments)))])
        case "replace", (_, search, Constant(_, new)):
            found = len(str(search.value).encode()) if isinstance(search, Constant) else 1
            return arguments[0].multiplied(max(1.0, len(str(new).encode()) / max(found, 1)))
        case "regexp_replace", (_, Constant(_, pattern), Constant(_, new)):
            return _replaced(arguments[0], replacement(str(pattern), str(new)))
        case name, _ if name in _DIGESTS:
            return Growth(_DIGEST)
        case name, _:
            return largest(arguments).multiplied(_TIMES.get(name, 1.0), plus=4.0 if name == "base64" else 0.0)
    raise AssertionError(call.name)


def _replaced(text: Growth, by: Replacement) -> Growth:
    return text.multiplied(inf if by.is_overlapping else by.times, by.plus)


def _sum(growths: Iterable[Growth]) -> Growth:
    return _merged(growths, lambda one, other: one + other)


def _merged(growths: Iterable[Growth], both: Callable[[float, float], float]) -> Growth:
    plus, times = 0.0, dict[Column, float]()
    for one in growths:
        plus = both(plus, one.plus)
        for column, count in one.times.items():
            times[column] = both(times.get(column, 0.0), count)
    return Growth(plus, times)
