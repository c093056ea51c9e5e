"""Check the calls of functions, and convert their arguments to the types that each function needs."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from service.errors import did_you_mean
from service.model.expressions.checks import Checks, cast_hint
from service.model.expressions.functions import UNITS, Function, Takes
from service.model.expressions.kinds import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    Family,
    Kind,
    common_kind,
    describe_kind,
    family,
    is_plain,
    quotient_kind,
)
from service.model.expressions.tree import Cast, Constant, Node
from service.model.schema.types import Array, ColumnType, Map

MAX_FIXED = 1_000


class _Rule(NamedTuple):
    """What an argument must be, in words and by family, and the type that Spark gets: for a value and for a null.

    Without a type Spark gets the value as it is, and a null is refused.
    """

    words: str
    families: tuple[Family, ...]
    becomes: ColumnType | None = None
    null: ColumnType | None = STRING


_TIME = "a date or a time"
_RULES: dict[Takes, _Rule] = {
    "number": _Rule("a number", ("number",), null=INTEGER),
    "whole": _Rule("a whole number", ("number",), INTEGER, INTEGER),
    "long": _Rule("a whole number", ("number",), LONG, LONG),
    "text": _Rule("text", ("text",)),
    "boolean": _Rule("a condition", ("boolean",), null=BOOLEAN),
    "day": _Rule(_TIME, ("time",), DATE, DATE),
    "moment": _Rule(_TIME, ("time",), TIMESTAMPTZ, TIMESTAMPTZ),
    "time": _Rule(_TIME, ("time",), null=DATE),
    "list": _Rule("an array", ("list",), null=None),
    "map": _Rule("a map", ("map",), null=None),
    "collection": _Rule("an array or a map", ("list", "map"), null=None),
    "plain": _Rule("a plain value", ("number", "text", "boolean", "time", "binary")),
    "shown": _Rule("a plain value other than binary", ("number", "text", "boolean", "time"), STRING),
    "written": _Rule("text, a date or a time", ("time", "text")),
    "bytes": _Rule("text or binary", ("text", "binary")),
}
_FIXED: dict[Takes, str] = {
    "fixed text": "a text in quotes",
    "fixed whole": "a whole number in digits",
    "unit": "a unit such as 'month'",
}


def check_call(checks: Checks, function: Function, given: Sequence[Node], position: int) -> Node:
    """The call; refused if it has too many or too few arguments, or arguments of the wrong kind."""
    name = function.name
    if len(given) < function.least or (function.most is not None and len(given) > function.most):
        checks.refuse(position, f"{name} takes {function.count}, not {len(given)}: {function.signature}")
    arguments = [_Argument(checks, function, i, given, position).converted() for i in range(len(given))]
    alike = [i for i in range(len(given)) if function.taken(i) == "alike"]
    for i, value in zip(alike, checks.alike(name, [arguments[i] for i in alike], position), strict=True):
        arguments[i] = value
    kind = _result_kind(function, arguments, alike)
    if name == "date_trunc" and isinstance(kind, ColumnType):
        # Spark's function returns a timestamptz for any argument.
        return checks.made(Cast(checks.operation(name, arguments, TIMESTAMPTZ, position), kind), position)
    return checks.operation(name, arguments, kind, position)


def _result_kind(function: Function, arguments: Sequence[Node], alike: Sequence[int]) -> Kind:
    """The kind of the result."""
    kinds = [argument.kind for argument in arguments]
    match function.gives:
        case "first":
            return kinds[0]
        case "second":
            return kinds[1]
        case "alike":
            return common_kind([kinds[i] for i in alike] or kinds)
        case "quotient":
            return quotient_kind(kinds[0], kinds[1])
        case "element":
            return _element(kinds[0])
        case "keys":
            return Array(kinds[0].key, True) if isinstance(kinds[0], Map) else None
    return function.gives


class _Argument:
    """One argument of a call, with the kind that its function takes."""

    def __init__(self, checks: Checks, function: Function, at: int, given: Sequence[Node], position: int) -> None:
        self.checks = checks
        self.value = given[at]
        self.first = given[0]
        self.takes = function.taken(at)
        self.label = f"argument {at + 1} of {function.name}" if len(given) > 1 else f"the argument of {function.name}"
        self.position = position

    def converted(self) -> Node:
        """The value, converted to what the function takes."""
        match self.takes:
            case "any" | "alike":
                return self.value
            case "element":
                return self._like_element(_element(self.first.kind))
            case "key" if isinstance(self.first.kind, Map):
                return self._like_element(self.first.kind.key)
            case "key":
                # A position in an array.
                self.takes = "whole"
            case "fixed text" | "fixed whole" | "unit":
                return self._fixed(_FIXED[self.takes])
        return self._by_rule(_RULES[self.takes])

    def refuse(self, problem: str) -> NoReturn:
        self.checks.refuse(self.position, f"{self.label} {problem}")

    def cast(self, to: ColumnType) -> Node:
        return self.value if self.value.kind == to else self.checks.made(Cast(self.value, to), self.position)

    def _by_rule(self, rule: _Rule) -> Node:
        if rule.families == ("time",):
            self.value = self.checks.read(self.value, DATE if self.takes == "day" else TIMESTAMP, self.position)
        kind = self.value.kind
        of = family(kind)
        if kind is None and rule.null is not None:
            return self.cast(rule.null)
        if of not in rule.families:
            hint = cast_hint(self.value, rule.families[0])
            self.refuse(f"must be {rule.words}, not {describe_kind(kind)}{hint}")
        if self.takes in ("whole", "long") and kind not in (INTEGER, LONG):
            self.refuse("must be a whole number; round it or CAST(… AS integer)")
        if of == "text" and self.takes in ("bytes", "shown"):
            return self.cast(BINARY) if self.takes == "bytes" else self.value
        return self.value if rule.becomes is None else self.cast(rule.becomes)

    def _fixed(self, words: str) -> Node:
        value = self.value.value if isinstance(self.value, Constant) else None
        if type(value) is not (int if self.takes == "fixed whole" else str):
            self.refuse(f"must be {words}, not computed")
        if isinstance(value, int) and abs(value) > MAX_FIXED:
            self.refuse(f"must be from -{MAX_FIXED} to {MAX_FIXED}")
        if self.takes != "unit":
            return self.value
        unit = str(value).lower()
        if unit not in UNITS:
            near, hint = did_you_mean(unit, UNITS)
            self.checks.refuse(self.position, f"{unit[:40]!r} is not a unit of time; {hint}", near)
        return self.checks.made(Constant(STRING, unit), self.position)

    def _like_element(self, element: Kind) -> Node:
        if not is_plain(element):
            self.refuse(f"cannot be searched for, because an element is {describe_kind(element)}, not a plain value")
        if self.value.kind is None and element is not None:
            return self.cast(element)
        kind = self.checks.shared(self.label, (Constant(element, None), self.value), self.position)
        return self.checks.read(self.value, kind, self.position)


def _element(kind: Kind) -> Kind:
    if isinstance(kind, Array):
        return kind.items
    return kind.value if isinstance(kind, Map) else None
