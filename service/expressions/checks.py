"""What may be done with which kinds of values. Each check makes a node of the tree, or refuses with a way out."""

from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn, TypeGuard

from service.errors import FirnError
from service.expressions.functions import UNITS, Function, Takes
from service.expressions.kinds import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Kind,
    Unlike,
    castable,
    common,
    family,
    is_plain,
    is_whole,
    quotient,
    words,
)
from service.expressions.tree import Call, Case, Cast, Constant, Named, Node, children
from service.records import Misfit, read_value
from service.schema import Array, ColumnType, Map, hint

MAX_NODES = 2_000
MAX_HEIGHT = 200
MAX_GROWTH = 20_000
_GROWING = ("replace", "regexp_replace")
_JOINING = ("concat", "concat_ws")
_READ_FROM_TEXT = (DATE, TIMESTAMP, TIMESTAMPTZ, UUID)
_NEEDS: dict[str, str] = {
    "number": "number",
    "whole": "number",
    "long": "number",
    "text": "text",
    "boolean": "boolean",
    "day": "time",
    "moment": "time",
    "time": "time",
    "list": "list",
    "map": "map",
    "fixed text": "text",
    "fixed whole": "number",
}
_CALLED = {
    "number": "a number",
    "text": "text",
    "boolean": "a condition (true or false)",
    "time": "a date or a time",
    "list": "an array",
    "map": "a map",
}


class Checks:
    """Makes nodes for one expression; `path` is where it stands in the request."""

    def __init__(self, path: str, error: type[FirnError]) -> None:
        self.path = path
        self.error = error
        self._heights: dict[int, int] = {}
        self._growth: dict[int, int] = {}
        self._made: list[Node] = []

    def refuse(self, place: int, problem: str, suggestion: str | None = None) -> NoReturn:
        raise self.error(f"{self.path}: at character {place + 1}: {problem}", field=self.path, suggestion=suggestion)

    def made(self, node: Node, place: int) -> Node:
        """The same node, counted."""
        parts = children(node)
        height = 1 + max((self._heights[id(part)] for part in parts), default=0)
        if height > MAX_HEIGHT:
            self.refuse(place, f"more than {MAX_HEIGHT} operations build on each other; compute it in steps")
        # Kept, so that no other node gets its id.
        self._made.append(node)
        if len(self._made) > MAX_NODES:
            self.refuse(place, f"the expression has more than {MAX_NODES} parts; say it in fewer")
        self._heights[id(node)] = height
        self._growth[id(node)] = self._grown(node, parts, place)
        return node

    def _grown(self, node: Node, parts: Sequence[Node], place: int) -> int:
        """How many times as long as the texts it reads its own text may be."""
        each = [self._growth[id(part)] for part in parts]
        grown = max(each, default=1)
        if isinstance(node, Call) and node.name in _JOINING:
            grown = sum(each)
        elif isinstance(node, Call) and node.name in _GROWING and len(parts) == 3:
            with_text = parts[2].value if isinstance(parts[2], Constant) else ""
            grown = each[0] * (1 + len(str(with_text)))
        if grown > MAX_GROWTH:
            self.refuse(place, "replaced so often, a text could become huge; replace less inside other replacements")
        return grown

    def operation(self, name: str, arguments: Sequence[Node], kind: Kind, place: int) -> Node:
        return self.made(Call(name, tuple(arguments), kind), place)

    def arithmetic(self, name: str, left: Node, right: Node, place: int) -> Node:
        if "time" in (family(left.kind), family(right.kind)) and name in "+-":
            self.refuse(place, f"{name} takes numbers; use date_add, date_sub, datediff or add_months for days")
        for side in (left, right):
            self._need(f"{name} takes numbers", side, "number", place)
        kind = common((left.kind, right.kind))
        if name == "/":
            kind = quotient(left.kind, right.kind)
        return self.operation(name, (left, right), LONG if name == "div" else kind, place)

    def negated(self, value: Node, place: int) -> Node:
        self._need("- takes a number", value, "number", place)
        return self.operation("negative", (value,), value.kind, place)

    def joined(self, left: Node, right: Node, place: int) -> Node:
        shown = [self._fit("|| takes plain values", part, "shown", place) for part in (left, right)]
        return self.operation("concat", shown, STRING, place)

    def logic(self, name: str, parts: Sequence[Node], place: int) -> Node:
        for part in parts:
            self._need(f"{name.upper()} takes conditions", part, "boolean", place)
        if name != "not" and isinstance(parts[0], Call) and parts[0].name == name:
            parts = (*parts[0].arguments, *parts[1:])
        return self.operation(name, parts, BOOLEAN, place)

    def comparison(self, name: str, left: Node, right: Node, place: int) -> Node:
        if name != "<=>" and any(isinstance(side, Constant) and side.value is None for side in (left, right)):
            self.refuse(place, "nothing compares with null, not even null; use IS NULL, IS NOT NULL or <=>")
        sides = self._comparable(name, (left, right), place, ordered=name in ("<", "<=", ">", ">="))
        return self.operation(name, sides, BOOLEAN, place)

    def among(self, value: Node, values: Sequence[Node], place: int) -> Node:
        return self.operation("in", self._comparable("IN", (value, *values), place), BOOLEAN, place)

    def between(self, value: Node, low: Node, high: Node, place: int) -> Node:
        sides = self._comparable("BETWEEN", (value, low, high), place, ordered=True)
        return self.operation("between", sides, BOOLEAN, place)

    def like(self, name: str, value: Node, pattern: Node, place: int) -> Node:
        for part in (value, pattern):
            self._need(f"{name.upper()} takes text", part, "text", place)
        if name != "rlike" and isinstance(pattern, Constant) and _bad_escape(str(pattern.value)):
            self.refuse(place, "in a pattern a backslash escapes only %, _ or another backslash; write two for one")
        return self.operation(name, (value, pattern), BOOLEAN, place)

    def is_null(self, value: Node, place: int) -> Node:
        return self.operation("is_null", (value,), BOOLEAN, place)

    def case(self, of: Node | None, branches: Sequence[tuple[Node, Node]], otherwise: Node | None, place: int) -> Node:
        conditions = [condition for condition, _ in branches]
        if of is None:
            for condition in conditions:
                self._need("WHEN takes a condition", condition, "boolean", place)
        else:
            of, *conditions = self._comparable("CASE", (of, *conditions), place)
        values = [value for _, value in branches] + ([] if otherwise is None else [otherwise])
        values = self.alike("the branches of CASE", values, place)
        kind = common(value.kind for value in values)
        last = None if otherwise is None else values.pop()
        return self.made(Case(of, tuple(zip(conditions, values, strict=True)), last, kind), place)

    def cast(self, value: Node, to: ColumnType, safe: bool, place: int) -> Node:
        if not castable(value.kind, to):
            self.refuse(place, f"{words(value.kind)} cannot be cast to {to}")
        return self.made(Cast(value, to, safe), place)

    def alike(self, what: str, values: Sequence[Node], place: int) -> list[Node]:
        """The values, made to be of one kind."""
        kind = self._common(what, values, place)
        return [self._read(value, kind, place) for value in values]

    def literal(self, kind: ColumnType, text: str, place: int) -> Node:
        """A text read as a value of the kind, as a record has it."""
        try:
            value = read_value(kind)(text)
        except Misfit as e:
            self.refuse(place, e.problem)
        if kind == TIMESTAMP and isinstance(value, datetime) and _has_zone(text):
            return self.literal(TIMESTAMPTZ, text, place)
        return self.made(Constant(kind, value), place)

    def call(self, function: Function, given: Sequence[Node], place: int) -> Node:
        """A call of the function; its arguments are made to be what it takes."""
        name = function.name
        if len(given) < function.least or (function.most is not None and len(given) > function.most):
            self.refuse(place, f"{name} takes {function.count} arguments, not {len(given)}: {function.signature}")
        what = f"{name} takes {function.signature.partition('(')[2][:-1]}"
        arguments = [self._argument(what, a, function.taken(i), i, given, place) for i, a in enumerate(given)]
        places = [i for i in range(len(given)) if function.taken(i) == "alike"]
        for i, value in zip(places, self.alike(name, [arguments[i] for i in places], place), strict=True):
            arguments[i] = value
        kind = self._given(function, [arguments[i] for i in places] or arguments, arguments, place)
        if name == "date_trunc" and kind is not None:
            # Spark's makes a moment of whatever it is given.
            return self.made(Cast(self.operation(name, arguments, TIMESTAMPTZ, place), kind), place)
        return self.operation(name, arguments, kind, place)

    def _given(self, function: Function, alike: Sequence[Node], arguments: Sequence[Node], place: int) -> Kind:
        match function.gives:
            case "first":
                return arguments[0].kind
            case "second":
                return arguments[1].kind
            case "alike":
                return common(argument.kind for argument in alike)
            case "quotient":
                return quotient(arguments[0].kind, arguments[1].kind)
            case "element":
                return _element(arguments[0].kind)
            case "keys":
                kind = arguments[0].kind
                return Array(kind.key, True) if isinstance(kind, Map) else None
        return function.gives

    def _argument(self, what: str, value: Node, takes: Takes, at: int, given: Sequence[Node], place: int) -> Node:
        if takes == "element":
            element = _element(given[0].kind)
            if not is_plain(element) or not is_plain(value.kind):
                self.refuse(place, f"{what}; only plain elements are looked for, not {words(element)}")
            return self._read(value, self._common(what, (Constant(element, None), value), place), place)
        if takes == "key":
            holder = given[0].kind
            if isinstance(holder, Map):
                return self._read(value, self._common(what, (Constant(holder.key, None), value), place), place)
            takes = "whole"
        return self._fit(what, value, takes, place)

    def _fit(self, what: str, value: Node, takes: Takes, place: int) -> Node:
        """The value as an argument of this sort."""
        kind = value.kind
        if takes in ("fixed text", "fixed whole", "unit"):
            return self._fixed(what, value, takes, place)
        if takes in ("plain", "shown", "written", "bytes", "collection"):
            return self._one_of(what, value, takes, place)
        needed = _NEEDS.get(takes)
        if needed is None:
            return value
        if needed == "time":
            value = self._read(value, DATE if takes == "day" else TIMESTAMP, place)
        if kind is None and needed in ("list", "map"):
            self.refuse(place, f"{what}; null has no elements")
        self._need(what, value, needed, place)
        return self._turned(what, value, takes, place)

    def _turned(self, what: str, value: Node, takes: Takes, place: int) -> Node:
        kind = value.kind
        if takes in ("whole", "long") and kind is not None and not is_whole(kind):
            self.refuse(place, f"{what}; where it takes a whole number, give one or CAST(… AS integer)")
        to = {
            "number": kind or INTEGER,
            "whole": INTEGER,
            "long": LONG,
            "text": kind or STRING,
            "boolean": BOOLEAN,
            "day": DATE,
            "moment": TIMESTAMPTZ,
            "time": kind or DATE,
        }.get(takes, kind)
        return value if to is None or to == kind else self.made(Cast(value, to), place)

    def _one_of(self, what: str, value: Node, takes: Takes, place: int) -> Node:
        of = family(value.kind)
        fitting = {
            "plain": is_plain(value.kind),
            "shown": is_plain(value.kind) and of != "binary",
            "written": of in ("text", "time"),
            "bytes": of in ("text", "binary"),
            "collection": of in ("list", "map"),
        }[takes]
        if of == "null" and takes != "collection":
            return self.made(Cast(value, STRING), place)
        if not fitting:
            self.refuse(place, f"{what}, not {words(value.kind)}")
        if takes == "shown" and of != "text":
            return self.made(Cast(value, STRING), place)
        return self.made(Cast(value, BINARY), place) if takes == "bytes" and of == "text" else value

    def _fixed(self, what: str, value: Node, takes: Takes, place: int) -> Node:
        wanted = str if takes != "fixed whole" else int
        if not isinstance(value, Constant) or type(value.value) is not wanted:
            sort = "a whole number" if wanted is int else "a text in quotes"
            self.refuse(place, f"{what}; one of these must be {sort} as it stands, not computed")
        if takes == "unit":
            unit = str(value.value).lower()
            if unit not in UNITS:
                near, said = hint(unit, UNITS)
                self.refuse(place, f"{unit[:40]!r} is not a unit; {said}", near)
            return self.made(Constant(STRING, unit), place)
        return value

    def _need(self, what: str, value: Node, needed: str, place: int) -> None:
        if family(value.kind) not in (needed, "null"):
            self.refuse(place, f"{what}, not {words(value.kind)}{_way(value, needed)}")

    def _comparable(self, what: str, values: Sequence[Node], place: int, *, ordered: bool = False) -> list[Node]:
        kind = self._common(f"{what}:", values, place)
        if kind is not None and not is_plain(kind):
            self.refuse(place, f"{what} compares plain values, not {words(kind)}; name a field or an element inside it")
        if ordered and kind == BOOLEAN:
            self.refuse(place, f"{what} does not go with true and false; use = or <>")
        return [self._read(value, kind, place) for value in values]

    def _common(self, what: str, values: Sequence[Node], place: int) -> Kind:
        others = [value for value in values if not _is_text(value)]
        try:
            first = common(value.kind for value in others)
            if first in _READ_FROM_TEXT:
                return first
            return common(value.kind for value in values)
        except Unlike as e:
            self.refuse(place, f"{what} {e} do not go together; CAST one of them")

    def _read(self, value: Node, kind: Kind, place: int) -> Node:
        """A text that the expression itself has, read as the time or uuid it stands beside."""
        if kind is None or kind not in _READ_FROM_TEXT or not _is_text(value):
            return value
        text = str(value.value)
        return self.literal(TIMESTAMP if kind == DATE and len(text) > 10 else kind, text, place)


def _is_text(value: Node) -> TypeGuard[Constant]:
    return isinstance(value, Constant) and value.kind == STRING and value.value is not None


def _element(kind: Kind) -> Kind:
    if isinstance(kind, Array):
        return kind.items
    return kind.value if isinstance(kind, Map) else None


def _way(value: Node, needed: str) -> str:
    if needed == "text" and is_plain(value.kind):
        return "; CAST(… AS string) makes text of it"
    if needed == "number" and family(value.kind) == "text":
        if isinstance(value, Named):
            return f"; CAST({value.column.name} AS decimal(18,4)) reads its text as a number"
        return "; CAST(… AS double) reads text as a number"
    if needed == "time" and family(value.kind) == "text":
        return "; to_date(…), to_timestamp(…) or CAST(… AS date) read text as one"
    return ""


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[10:]


def _bad_escape(pattern: str) -> bool:
    rest = pattern.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
    return "\\" in rest
