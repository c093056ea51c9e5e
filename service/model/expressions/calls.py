"""Check the calls of functions, and convert their arguments to what each function takes."""

from collections.abc import Sequence

from service.errors import did_you_mean
from service.model.expressions.checks import Checks
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
    is_whole,
    quotient_kind,
)
from service.model.expressions.tree import Cast, Constant, Node
from service.model.schema.types import Array, ColumnType, Map

MAX_FIXED = 1_000
_NEEDED: dict[Takes, Family] = {
    **dict.fromkeys(("number", "whole", "long", "fixed whole"), "number"),
    **dict.fromkeys(("text", "fixed text", "unit"), "text"),
    **dict.fromkeys(("day", "moment", "time"), "time"),
    "boolean": "boolean",
    "list": "list",
    "map": "map",
}
_ONE_OF: dict[Takes, tuple[Family, ...]] = {
    "plain": ("number", "text", "boolean", "time", "binary"),
    "shown": ("number", "text", "boolean", "time"),
    "written": ("text", "time"),
    "bytes": ("text", "binary"),
    "collection": ("list", "map"),
}
_CALLED: dict[Takes, str] = {
    "number": "a number",
    "whole": "a whole number",
    "long": "a whole number",
    "text": "text",
    "boolean": "a condition",
    "list": "an array",
    "map": "a map",
    "plain": "a plain value",
    "shown": "a plain value other than binary",
    "written": "text, a date or a time",
    "bytes": "text or binary",
    "collection": "an array or a map",
    "fixed text": "a text in quotes",
    "fixed whole": "a whole number in digits",
    "unit": "a unit such as 'month'",
}
# The type that Spark gets. Arguments that may be any number, text or time keep their own.
_BECOMES: dict[Takes, ColumnType] = {
    "whole": INTEGER,
    "long": LONG,
    "day": DATE,
    "moment": TIMESTAMPTZ,
}
_IF_NULL: dict[Takes, ColumnType] = {**_BECOMES, "boolean": BOOLEAN, "number": INTEGER, "text": STRING, "time": DATE}


def check_call(checks: Checks, function: Function, given: Sequence[Node], place: int) -> Node:
    """The call; refused if it has too many or too few arguments, or arguments of the wrong kind."""
    name = function.name
    if len(given) < function.least or (function.most is not None and len(given) > function.most):
        checks.refuse(place, f"{name} takes {function.count}, not {len(given)}: {function.signature}")
    arguments = [_Argument(checks, function, i, given, place).taken() for i in range(len(given))]
    alike = [i for i in range(len(given)) if function.taken(i) == "alike"]
    for i, value in zip(alike, checks.alike(name, [arguments[i] for i in alike], place), strict=True):
        arguments[i] = value
    kind = _given(function, arguments, alike)
    if name == "date_trunc" and isinstance(kind, ColumnType):
        # Spark's function returns a timestamptz for any argument.
        return checks.made(Cast(checks.operation(name, arguments, TIMESTAMPTZ, place), kind), place)
    return checks.operation(name, arguments, kind, place)


def _given(function: Function, arguments: Sequence[Node], alike: Sequence[int]) -> Kind:
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

    def __init__(self, checks: Checks, function: Function, at: int, given: Sequence[Node], place: int) -> None:
        self.checks = checks
        self.value = given[at]
        self.first = given[0]
        self.takes = function.taken(at)
        self.which = f"argument {at + 1} of {function.name}" if len(given) > 1 else f"the argument of {function.name}"
        self.place = place

    def taken(self) -> Node:
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
                return self._fixed()
        return self._one_of() if self.takes in _ONE_OF else self._needed(_NEEDED[self.takes])

    def refuse(self, problem: str) -> None:
        self.checks.refuse(self.place, f"{self.which} {problem}")

    def cast(self, to: ColumnType) -> Node:
        return self.value if self.value.kind == to else self.checks.made(Cast(self.value, to), self.place)

    def _needed(self, needed: Family) -> Node:
        if needed == "time":
            self.value = self.checks.read(self.value, DATE if self.takes == "day" else TIMESTAMP, self.place)
        kind = self.value.kind
        called = _CALLED.get(self.takes, "a date or a time")
        if kind is None and needed in ("list", "map"):
            self.refuse(f"must be {called}, not null")
        self.checks.need(f"{self.which} must be {called}", self.value, needed, self.place)
        if self.takes in ("whole", "long") and kind is not None and not is_whole(kind):
            self.refuse("must be a whole number; round it or CAST(… AS integer)")
        to = (_IF_NULL if kind is None else _BECOMES).get(self.takes)
        return self.value if to is None else self.cast(to)

    def _one_of(self) -> Node:
        of = family(self.value.kind)
        if of == "null" and self.takes != "collection":
            return self.cast(STRING)
        if of not in _ONE_OF[self.takes]:
            self.refuse(f"must be {_CALLED[self.takes]}, not {describe_kind(self.value.kind)}")
        if of == "text" and self.takes == "bytes":
            return self.cast(BINARY)
        return self.cast(STRING) if self.takes == "shown" and of != "text" else self.value

    def _fixed(self) -> Node:
        value = self.value.value if isinstance(self.value, Constant) else None
        if type(value) is not (int if self.takes == "fixed whole" else str):
            self.refuse(f"must be {_CALLED[self.takes]}, not computed")
        if isinstance(value, int) and abs(value) > MAX_FIXED:
            self.refuse(f"must be from -{MAX_FIXED} to {MAX_FIXED}")
        if self.takes != "unit":
            return self.value
        unit = str(value).lower()
        if unit not in UNITS:
            near, words = did_you_mean(unit, UNITS)
            self.checks.refuse(self.place, f"{unit[:40]!r} is not a unit of time; {words}", near)
        return self.checks.made(Constant(STRING, unit), self.place)

    def _like_element(self, element: Kind) -> Node:
        if not is_plain(element):
            self.refuse(f"cannot be searched for: the elements are not plain values but {describe_kind(element)}")
        if self.value.kind is None and element is not None:
            return self.cast(element)
        kind = self.checks.shared(self.which, (Constant(element, None), self.value), self.place)
        return self.checks.read(self.value, kind, self.place)


def _element(kind: Kind) -> Kind:
    if isinstance(kind, Array):
        return kind.items
    return kind.value if isinstance(kind, Map) else None
