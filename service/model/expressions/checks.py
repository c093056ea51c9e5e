"""Check which operations fit which kinds of values. Each check returns a node, or raises an error with a hint."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from math import isinf
from typing import NoReturn, TypeGuard

from service.errors import FirnError
from service.model.expressions.growth import Growth, growth_of
from service.model.expressions.kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Family,
    Kind,
    NoCommonKind,
    castable,
    common_kind,
    describe_kind,
    family,
    is_plain,
    quotient_kind,
)
from service.model.expressions.tree import Case, Cast, ColumnValue, Constant, FunctionCall, Node, children
from service.model.patterns.backtracking import problem_of
from service.model.records import InvalidValue, read_value
from service.model.schema.definition import MAX_PRECISION
from service.model.schema.types import ColumnType, DecimalType

MAX_NODES = 2_000
MAX_HEIGHT = 200
_PATTERNS = frozenset({"like", "ilike", "rlike", "regexp_like", "regexp_replace", "regexp_extract"})
_READ_FROM_TEXT = (DATE, TIMESTAMP, TIMESTAMPTZ, UUID)
_ORDERED = ("<", "<=", ">", ">=")


class Checks:
    """Makes the nodes of an expression: operators, CASE, CAST and literals. It limits their number, depth and growth.

    Errors say where in the text the problem is; `path` is the place of the expression in the request.
    """

    def __init__(self, path: str, error: type[FirnError]) -> None:
        self.path = path
        self.error = error
        self._made: list[Node] = []
        self._heights: dict[int, int] = {}
        self._growth: dict[int, Growth] = {}

    def refuse(self, position: int, problem: str, suggestion: str | None = None) -> NoReturn:
        raise self.error(f"{self.path}: at character {position + 1}: {problem}", field=self.path, suggestion=suggestion)

    def made(self, node: Node, position: int) -> Node:
        """Count a node and return it; `position` is its position in the text."""
        parts = children(node)
        # Nodes are kept so that their ids stay unique.
        self._made.append(node)
        if len(self._made) > MAX_NODES:
            self.refuse(position, f"the expression has more than {MAX_NODES} parts; simplify it")
        height = 1 + max((self._heights[id(part)] for part in parts), default=0)
        if height > MAX_HEIGHT:
            self.refuse(position, f"more than {MAX_HEIGHT} operations build on each other; compute it in steps")
        growth = growth_of(node, self._growth)
        if growth.is_endless:
            self.refuse(position, "it could make a text huge; nest fewer functions that make texts longer")
        self._heights[id(node)], self._growth[id(node)] = height, growth
        return node

    def operation(self, name: str, arguments: Sequence[Node], kind: Kind, position: int) -> Node:
        if name in _PATTERNS:
            self._check_pattern(name, arguments[1], position)
        return self.made(FunctionCall(name, tuple(arguments), kind), position)

    def _check_pattern(self, name: str, pattern: Node, position: int) -> None:
        """Refuse a pattern that may take too long; of LIKE, only if it is a literal."""
        if isinstance(pattern, Constant):
            problem = problem_of(name, str(pattern.value)) if pattern.value is not None else None
            if problem:
                self.refuse(position, problem)
        elif name not in ("like", "ilike") and not _is_null(pattern):
            self.refuse(
                position,
                f"the regular expression of {name} must be a literal, so that it is known how long it takes; for plain "
                "text use contains, replace or split_part",
            )

    def arithmetic(self, name: str, left: Node, right: Node, position: int) -> Node:
        if "time" in (family(left.kind), family(right.kind)) and name in "+-":
            self.refuse(position, f"{name} takes numbers; for days use date_add, date_sub, datediff or add_months")
        for side in (left, right):
            self.need(f"{name} takes numbers", side, "number", position)
        if name == "/":
            return self.operation(name, (left, right), quotient_kind(left.kind, right.kind), position)
        kind = LONG if name == "div" else common_kind((left.kind, right.kind))
        return self.operation(name, (left, right), kind, position)

    def negated(self, value: Node, position: int) -> Node:
        self.need("- takes a number", value, "number", position)
        return self.operation("negative", (value,), value.kind, position)

    def logic(self, name: str, parts: Sequence[Node], position: int) -> Node:
        for part in parts:
            self.need(f"{name.upper()} takes conditions", part, "boolean", position)
        first = parts[0]
        if name != "not" and isinstance(first, FunctionCall) and first.name == name:
            parts = (*first.arguments, *parts[1:])
        return self.operation(name, parts, BOOLEAN, position)

    def comparison(self, name: str, left: Node, right: Node, position: int) -> Node:
        if name != "<=>" and Constant(None, None) in (left, right):
            self.refuse(position, "a comparison with null is never true; use IS NULL, IS NOT NULL or <=>")
        sides = self._comparable(name, (left, right), position, ordered=name in _ORDERED)
        return self.operation(name, sides, BOOLEAN, position)

    def among(self, value: Node, values: Sequence[Node], position: int) -> Node:
        if not values:
            self.refuse(position, "IN needs at least one value in its list")
        return self.operation("in", self._comparable("IN", (value, *values), position), BOOLEAN, position)

    def between(self, value: Node, low: Node, high: Node, position: int) -> Node:
        sides = self._comparable("BETWEEN", (value, low, high), position, ordered=True)
        return self.operation("between", sides, BOOLEAN, position)

    def like(self, name: str, value: Node, pattern: Node, position: int) -> Node:
        for part in (value, pattern):
            self.need(f"{name.upper()} takes text", part, "text", position)
        if name != "rlike" and isinstance(pattern, Constant) and has_bad_escape(str(pattern.value)):
            self.refuse(position, "a backslash in a pattern escapes only %, _ or another backslash; write two for one")
        return self.operation(name, (value, pattern), BOOLEAN, position)

    def is_null(self, value: Node, position: int) -> Node:
        return self.operation("is_null", (value,), BOOLEAN, position)

    def case(
        self, of: Node | None, branches: Sequence[tuple[Node, Node]], otherwise: Node | None, position: int
    ) -> Node:
        conditions = [condition for condition, _ in branches]
        if of is None:
            for condition in conditions:
                self.need("WHEN takes a condition", condition, "boolean", position)
        else:
            of, *conditions = self._comparable("CASE", (of, *conditions), position)
        values = [value for _, value in branches] + ([] if otherwise is None else [otherwise])
        values = self.alike("the branches of CASE", values, position)
        kind = common_kind(value.kind for value in values)
        last = None if otherwise is None else values.pop()
        return self.made(Case(of, tuple(zip(conditions, values, strict=True)), last, kind), position)

    def cast(self, value: Node, to: ColumnType, safe: bool, position: int) -> Node:
        if not castable(value.kind, to):
            self.refuse(position, f"{describe_kind(value.kind)} cannot be cast to {to}")
        return self.made(Cast(value, to, safe), position)

    def literal(self, kind: ColumnType, text: str, position: int) -> Node:
        """Read a text as a value of the kind, as in a record."""
        try:
            value = read_value(kind)(text)
            if kind == TIMESTAMP and isinstance(value, datetime) and _has_zone(text):
                kind, value = TIMESTAMPTZ, read_value(TIMESTAMPTZ)(text)
        except InvalidValue as e:
            self.refuse(position, e.problem)
        return self.made(Constant(kind, value), position)

    def number(self, text: str, position: int) -> Node:
        """A whole number or a decimal is exact, in the smallest type that fits it; with an exponent it is a double."""
        if "e" in text.lower():
            if isinf(float(text)):
                self.refuse(position, f"{text[:40]} is larger than any double")
            return self.made(Constant(DOUBLE, float(text)), position)
        number = Decimal(text)
        if "." not in text and -(2**63) <= number < 2**63:
            return self.made(Constant(INTEGER if -(2**31) <= number < 2**31 else LONG, int(number)), position)
        _, digits, exponent = number.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale)
        if precision > MAX_PRECISION:
            problem = (
                f"a number has at most {MAX_PRECISION} digits; write it with an exponent, such as 1e40, for a double"
            )
            self.refuse(position, problem)
        return self.made(Constant(DecimalType(precision, scale), number), position)

    def need(self, what: str, value: Node, needed: Family, position: int) -> None:
        if family(value.kind) not in (needed, "null"):
            self.refuse(position, f"{what}, not {describe_kind(value.kind)}{cast_hint(value, needed)}")

    def alike(self, what: str, values: Sequence[Node], position: int) -> list[Node]:
        """The values, converted to one kind."""
        kind = self.shared(what, values, position)
        return [self.read(value, kind, position) for value in values]

    def shared(self, what: str, values: Sequence[Node], position: int) -> Kind:
        """The kind that the values have in common; a text literal next to a time or a uuid is read as that kind."""
        try:
            others = common_kind(value.kind for value in values if not _is_text(value))
            return others if others in _READ_FROM_TEXT else common_kind(value.kind for value in values)
        except NoCommonKind as e:
            self.refuse(position, f"{what}: {e} do not go together; CAST one of them")

    def read(self, value: Node, kind: Kind, position: int) -> Node:
        """The value; a text literal becomes the time or uuid that it means."""
        if kind is None or kind not in _READ_FROM_TEXT or not _is_text(value):
            return value
        text = str(value.value)
        return self.literal(TIMESTAMP if kind == DATE and len(text) > 10 else kind, text, position)

    def _comparable(self, what: str, values: Sequence[Node], position: int, *, ordered: bool = False) -> list[Node]:
        kind = self.shared(what, values, position)
        if kind is not None and not is_plain(kind):
            problem = f"{what} compares plain values, not {describe_kind(kind)}; name a field or an element inside it"
            self.refuse(position, problem)
        if ordered and kind == BOOLEAN:
            self.refuse(position, f"{what} does not work on true and false; use = or <>")
        return [self.read(value, kind, position) for value in values]


def _is_text(value: Node) -> TypeGuard[Constant]:
    return isinstance(value, Constant) and value.kind == STRING and value.value is not None


def cast_hint(value: Node, needed: Family) -> str:
    """How to convert a value to what is needed, for the end of a message; empty if CAST cannot."""
    shown = value.column.name if isinstance(value, ColumnValue) else "…"
    if needed == "text" and is_plain(value.kind):
        return f"; CAST({shown} AS string) converts it to text"
    if needed == "number" and family(value.kind) == "text":
        return f"; CAST({shown} AS double) converts text to a number"
    if needed == "time" and family(value.kind) == "text":
        return f"; CAST({shown} AS date) or to_timestamp({shown}) convert text to one"
    return ""


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[10:]


def has_bad_escape(pattern: str) -> bool:
    """Whether a LIKE pattern has a backslash before anything but %, _ or another backslash."""
    return "\\" in pattern.replace("\\\\", "").replace("\\%", "").replace("\\_", "")


def _is_null(value: Node) -> bool:
    """Whether a value is null, in a type of its own or not."""
    return _is_null(value.value) if isinstance(value, Cast) else isinstance(value, Constant) and value.value is None
