"""Random schemas of every type, nested three deep, and JSON records that fit them, edge values included.

Hypothesis looks a strategy over before it first draws from it: so the same one is asked for again and again.
"""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from service.model.schema.types import (
    FLOATING,
    PRIMITIVES,
    Array,
    ColumnType,
    DecimalType,
    Field,
    Map,
    Primitive,
    Struct,
    TableSchema,
    fold_case,
)

DEPTH = 3
EDGE_TEXTS = (
    "",
    " ",
    "NaN",
    "null",
    "it's",
    'say "hi"',
    "\\",
    "\x00",
    "\n\t",
    "é",
    "e\u0301",
    "日本語",
    "😀",
    "\u202e",
)
EDGE_DAYS = ("0001-01-01", "1582-10-04", "1582-10-15", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31")
FLOAT32_MAX = 3.4028234663852886e38

_words = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(EDGE_TEXTS)
_plain_names = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True)
_odd_names = st.sampled_from(
    ("select", "two words", "UPPER", "ünïcode", "a-b", "1st", "quo'te", 'dou"ble', "日", "key")
)


@cache
def decimals() -> SearchStrategy[DecimalType]:
    """Every precision and scale."""
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))


@cache
def leaves() -> SearchStrategy[ColumnType]:
    """Every type that holds one value."""
    return st.sampled_from(PRIMITIVES).map(Primitive) | decimals()


@cache
def keys() -> SearchStrategy[ColumnType]:
    """Every type a map's key or a primary key may have."""
    return leaves().filter(lambda t: not (isinstance(t, Primitive) and t.name in FLOATING))


@cache
def types(depth: int = DEPTH) -> SearchStrategy[ColumnType]:
    """Every type; containers hold each other at most `depth` deep."""
    if depth == 0:
        return leaves()
    inner = types(depth - 1)
    return st.one_of(
        leaves(),
        st.builds(Array, inner, st.booleans()),
        st.builds(Map, keys(), inner, st.booleans()),
        st.builds(Struct, _fields(inner, 3)),
    )


@cache
def schemas(depth: int = DEPTH, *, max_columns: int = 6, keyed: bool = False) -> SearchStrategy[TableSchema]:
    """Tables of one to `max_columns` columns; with `keyed`, the first column is the primary key."""
    plain = _fields(types(depth), max_columns).map(TableSchema)
    if not keyed:
        return plain
    return st.tuples(keys(), plain).map(lambda t: _with_key(*t))


def records(schema: TableSchema, *, min_size: int = 0, max_size: int = 8) -> SearchStrategy[list[dict[str, Any]]]:
    """Lists of records that fit, as JSON parsed by `wire.parse` has them; null and absent both occur."""
    return st.lists(_objects(schema.fields), min_size=min_size, max_size=max_size)


def partitions(schema: TableSchema) -> SearchStrategy[dict[str, Any]]:
    """The JSON form of partitionings of this schema by at most two fields, nested ones included; maybe none."""
    one = [{"field": path, **how} for path, kind, safe in _sources(schema.fields) for how in _transforms(kind, safe)]
    if not one:
        return st.just({"partitions": []})
    picked = st.lists(st.sampled_from(one), max_size=2, unique_by=lambda p: p["field"])
    return picked.map(lambda ps: {"partitions": [{**p, "name": f"by {i}"} for i, p in enumerate(ps)]})


@cache
def values(kind: ColumnType) -> SearchStrategy[Any]:
    """Non-null JSON values of one type."""
    match kind:
        case DecimalType():
            return _decimals(kind)
        case Array():
            return st.lists(_maybe(kind.items, kind.items_required), max_size=3)
        case Map():
            return st.dictionaries(_key_texts(kind.key), _maybe(kind.value, kind.value_required), max_size=3)
        case Struct():
            return _objects(kind.fields)
        case Primitive(name):
            return _PRIMITIVE[name]


def json_text(value: Any) -> str:
    """The JSON a client sends for drawn records: numbers as written, never through a float."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(k)}:{json_text(v)}' for k, v in value.items())}}}"
    return json.dumps(value)


def same(one: Any, other: Any) -> bool:
    """Equal values of equal types, NaN equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def _sources(fields: tuple[Field, ...], parent: str = "", safe: bool = True) -> Iterator[tuple[str, str, bool]]:
    for f in fields:
        if isinstance(f.type, Struct):
            yield from _sources(f.type.fields, f"{parent}{f.name}.", safe and f.required)
        elif isinstance(f.type, Primitive | DecimalType):
            yield parent + f.name, "decimal" if isinstance(f.type, DecimalType) else f.type.name, safe


def _transforms(kind: str, identity: bool) -> Iterator[dict[str, Any]]:
    if identity:
        yield {"transform": "identity"}
    if kind in ("date", "timestamp", "timestamptz"):
        yield from ({"transform": name} for name in ("year", "month", "day"))
    if kind in ("timestamp", "timestamptz"):
        yield {"transform": "hour"}
    if kind not in ("float", "double", "boolean"):
        yield {"transform": "bucket", "num_buckets": 4}
    if kind in ("integer", "long", "decimal", "string", "binary"):
        yield {"transform": "truncate", "width": 3}


def _with_key(kind: ColumnType, table: TableSchema) -> TableSchema:
    others = tuple(f for f in table.fields if fold_case(f.name) != "the_key")
    return TableSchema((Field("the_key", kind, True), *others), ("the_key",))


def _fields(kinds: SearchStrategy[ColumnType], max_size: int) -> SearchStrategy[tuple[Field, ...]]:
    field = st.builds(Field, _plain_names | _odd_names, kinds, st.booleans())
    return st.lists(field, min_size=1, max_size=max_size, unique_by=lambda f: fold_case(f.name)).map(tuple)


@cache
def _maybe(kind: ColumnType, required: bool) -> SearchStrategy[Any]:
    return values(kind) if required else st.none() | values(kind)


@cache
def _objects(fields: tuple[Field, ...]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {f.name: values(f.type) for f in fields if f.required},
        optional={f.name: _maybe(f.type, False) for f in fields if not f.required},
    )


@cache
def _key_texts(kind: ColumnType) -> SearchStrategy[str]:
    if kind == Primitive("boolean"):
        return st.sampled_from(("true", "false"))
    if isinstance(kind, DecimalType):
        # One spelling each: 1 and 1.0 would be one key twice.
        return _unscaled(kind).map(lambda n: format(_shift(n, -kind.scale), "f"))
    if kind == Primitive("uuid"):
        return st.uuids().map(str)
    if kind == Primitive("timestamp"):
        return _datetimes().map(datetime.isoformat)
    if kind == Primitive("timestamptz"):
        return _datetimes().map(lambda d: f"{d.isoformat()}Z")
    return values(kind).map(str)


def _integers(bits: int) -> SearchStrategy[Any]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = st.sampled_from((low, low + 1, -1, 0, 1, high - 1, high))
    return st.integers(low, high) | edges


def _floats(width: int) -> SearchStrategy[Any]:
    high = FLOAT32_MAX if width == 32 else 1.7976931348623157e308
    finite = st.floats(-high, high, width=64 if width == 64 else 32, allow_nan=False, allow_infinity=False)
    return st.one_of(
        finite.map(lambda x: Decimal(repr(x))),
        st.integers(-(2**24), 2**24),
        st.sampled_from(("NaN", "Infinity", "-Infinity")),
        st.sampled_from((0, Decimal("-0.0"), Decimal("0.1"), Decimal("1E-45"), Decimal(repr(high)))),
    )


@cache
def _unscaled(kind: DecimalType) -> SearchStrategy[int]:
    high = 10**kind.precision - 1
    return st.integers(-high, high) | st.sampled_from((-high, 0, 1, high))


def _decimals(kind: DecimalType) -> SearchStrategy[Any]:
    exact = _unscaled(kind).map(lambda n: _shift(n, -kind.scale))
    whole = 10 ** (kind.precision - kind.scale) - 1
    return st.one_of(
        exact,
        exact.map(str),
        exact.map(lambda d: format(d, "f") + ("0" if kind.scale else "")),
        st.integers(-whole, whole),
    )


def _shift(number: int, exponent: int) -> Decimal:
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, exponent))


@cache
def _datetimes() -> SearchStrategy[datetime]:
    edges = [datetime.fromisoformat(day) for day in EDGE_DAYS]
    return st.datetimes() | st.sampled_from((*edges, datetime.max, datetime.max.replace(microsecond=0)))


def _spelled(moment: datetime, form: str, minutes: int) -> str:
    if form == "naive":
        return moment.isoformat()
    if form == "space":
        return moment.isoformat(" ", "microseconds")
    if form == "Z" or not datetime(2, 1, 1) < moment < datetime(9999, 1, 1):
        return f"{moment.isoformat()}Z"
    return moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=minutes))).isoformat()


_timestamps = st.one_of(
    st.builds(_spelled, _datetimes(), st.sampled_from(("naive", "space", "Z", "offset")), st.integers(-1439, 1439)),
    st.sampled_from(EDGE_DAYS),
)
_PRIMITIVE: dict[str, SearchStrategy[Any]] = {
    "string": _words,
    "integer": _integers(32) | _integers(32).map(Decimal),
    "long": _integers(64) | _integers(64).map(Decimal),
    "float": _floats(32),
    "double": _floats(64),
    "boolean": st.booleans(),
    "date": st.dates().map(date.isoformat) | st.sampled_from(EDGE_DAYS),
    "timestamp": _timestamps,
    "timestamptz": _timestamps,
    "binary": st.binary(max_size=20).map(lambda b: base64.b64encode(b).decode("ascii")),
    "uuid": st.uuids().map(str) | st.uuids().map(lambda u: str(u).upper()),
}
