"""Random requests for the model's table: records, filters of both dialects, and what is wrong on purpose."""

from datetime import date
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.model.computed import CONDITIONS
from tests.model.computed import VALUES as COMPUTED

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "name": {"type": "string", "required": True},
        "kind": {"type": "string"},
        "n": {"type": "integer"},
        "price": {"type": "decimal(8,2)"},
        "day": {"type": "date"},
    },
    "primary_key": ["id"],
}
COLUMNS = tuple(SCHEMA["fields"])
OPTIONAL = ("kind", "n", "price", "day")
PARTITIONS: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"field": "kind", "transform": "identity"}],
    [{"field": "id", "transform": "bucket", "num_buckets": 2}],
    [{"field": "day", "transform": "month"}, {"field": "name", "transform": "truncate", "width": 1}],
)

_ids = st.integers(0, 9)
_names = st.sampled_from(("ann", "Ann", "bo", "", "a_b", "日本"))
_kinds = st.sampled_from(("x", "y", "X%"))
_numbers = st.sampled_from((-(2**31), -1, 0, 1, 7, 2**31 - 1))
_prices = st.sampled_from(("-0.01", "0.00", "9.50", "9.99", "999999.99"))
_days = st.sampled_from(("1969-12-31", "2024-01-31", "2024-02-01", "2024-02-29"))
VALUES: dict[str, SearchStrategy[Any]] = {
    "id": _ids,
    "name": _names,
    "kind": _kinds,
    "n": _numbers,
    "price": _prices,
    "day": _days,
}


def typed(column: str, value: Any) -> Any:
    """A JSON value of a column as Python has it."""
    if value is None:
        return None
    if column == "price":
        return Decimal(value)
    return date.fromisoformat(value) if column in ("day", "month") else value


def _maybe(column: str) -> SearchStrategy[Any]:
    return st.none() | VALUES[column]


BY_HAND: dict[str, SearchStrategy[Any]] = {
    "initial": st.sampled_from((None, "A", "?")),
    "score": st.sampled_from((None, 0, 3)),
    "month": st.sampled_from((None, "2024-02-01")),
}
"""What a caller sets a derived column to. Tables that have no such column are not sent it."""

records = st.fixed_dictionaries(
    {"id": _ids, "name": _names}, optional={column: _maybe(column) for column in OPTIONAL} | BY_HAND
)
"""What WRITE takes."""


def partial_records(keys: tuple[str, ...]) -> SearchStrategy[dict[str, Any]]:
    """What UPSERT takes: of the required columns only those that are keys must be there, unless the row is new."""
    optional = {c: VALUES[c] if c in ("id", "name") else _maybe(c) for c in COLUMNS} | BY_HAND
    few, more = ({c: VALUES[c] for c in dict.fromkeys((*keys, *others))} for others in ((), ("id", "name")))
    return st.sampled_from((few, more, more)).flatmap(
        lambda sure: st.fixed_dictionaries(sure, optional={c: v for c, v in optional.items() if c not in sure})
    )


def _set(column: str) -> SearchStrategy[Any]:
    plain = VALUES[column] if column == "name" else _maybe(column)
    return plain | st.sampled_from(list(COMPUTED[column])).map(lambda text: {"expression": text})


updates = st.fixed_dictionaries({}, optional={c: _set(c) for c in ("name", *OPTIONAL)} | BY_HAND).filter(
    lambda found: any(column in COLUMNS for column in found)
)
"""What UPDATE sets: literals, and expressions over the row."""

_wrong_value = st.sampled_from(
    (
        ("id", "one"),
        ("id", None),
        ("name", 5),
        ("n", 2**31),
        ("n", True),
        ("price", "1.005"),
        ("price", "10000000"),
        ("day", "2024-02-30"),
        ("nmae", "x"),
    )
)


@st.composite
def wrong_records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of which one, anywhere, does not fit."""
    listed = draw(st.lists(records, min_size=1, max_size=3))
    column, value = draw(_wrong_value)
    listed[draw(st.integers(0, len(listed) - 1))][column] = value
    return listed


def filters(depth: int = 2, *, empty: bool = False) -> SearchStrategy[Any]:
    """Filters of both dialects, nested; with `empty` also such that ask nothing, or hold parts that do."""
    least = 0 if empty else 1
    if depth == 0:
        return _maps() | st.lists(_listed(), min_size=least, max_size=3)
    inner = filters(depth - 1, empty=empty)
    return st.one_of(
        _maps(),
        st.fixed_dictionaries({"expression": st.sampled_from(list(CONDITIONS))}),
        st.lists(_listed(), min_size=least, max_size=3),
        st.fixed_dictionaries({"or": st.lists(inner, min_size=least, max_size=3)}),
        st.fixed_dictionaries({"and": st.lists(inner, min_size=least, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
        st.lists(inner | _listed(), min_size=1, max_size=2),
    )


def _conditions() -> SearchStrategy[tuple[str, str, Any]]:
    """A column, an operator that goes with it, and a value."""
    return st.sampled_from(COLUMNS).flatmap(
        lambda column: st.sampled_from(_operators(column)).flatmap(
            lambda operator: _value(column, operator).map(lambda value: (column, operator, value))
        )
    )


def _operators(column: str) -> tuple[str, ...]:
    common = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "between", "is_null", "is_not_null")
    texts = ("like", "ilike", "starts_with", "ends_with", "contains") if column in ("name", "kind") else ()
    return common + texts


def _value(column: str, operator: str) -> SearchStrategy[Any]:
    plain = VALUES[column]
    if column in ("id", "n"):
        plain = plain | st.just(Decimal("0.5"))
    match operator:
        case "is_null" | "is_not_null":
            return st.booleans()
        case "in" | "not_in":
            return st.lists(plain | st.none(), max_size=3)
        case "between":
            return st.lists(plain, min_size=2, max_size=2)
        case "like" | "ilike":
            return st.sampled_from(("%", "a%", "A__", "%o", "_%", "%_b", ""))
        case "starts_with" | "ends_with" | "contains":
            return st.sampled_from(("a", "", "b", "%", "x"))
    kin = {"name": "kind", "kind": "name", "id": "n", "n": "price", "price": "id", "day": "day"}[column]
    return plain | st.just({"field": kin})


def _maps() -> SearchStrategy[dict[str, Any]]:
    bare = st.sampled_from(COLUMNS).flatmap(lambda c: st.tuples(st.just(c), st.none() | VALUES[c]))
    tested = _conditions().map(lambda t: (t[0], {t[1]: t[2]}))
    return st.lists(bare | tested, min_size=1, max_size=3, unique_by=lambda t: t[0]).map(dict)


def _listed() -> SearchStrategy[dict[str, Any]]:
    return _conditions().map(lambda t: {"field": t[0], "operator": t[1], "value": t[2]})
