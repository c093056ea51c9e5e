"""What a change of rows comes to, worked out over a list of dicts from the contract alone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.model.asks import COLUMNS, typed
from tests.model.computed import DERIVED, Row
from tests.model.logic import keeps, new_value

Pair: TypeAlias = tuple[Row | None, Row | None]
"""A row before and after; None where it is not there."""
REQUIRED = ("id", "name")


@dataclass(frozen=True)
class Change:
    """A request that changes rows in place, but for its address."""

    operation: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Effect:
    """What a change comes to. Where it is refused, nothing but the code counts."""

    rows: list[Row] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    """The rows that it changes, takes away and adds."""
    counts: dict[str, int] = field(default_factory=dict)
    held: list[Row] = field(default_factory=list)
    """The rows that must be the same for a plan to hold."""
    refusal: str = ""


def effect(change: Change, rows: list[Row], derived: Iterable[str]) -> Effect:
    """What a change of these rows comes to, in a table that has these derived columns."""
    return _EFFECTS[change.operation](change.fields, rows, tuple(derived))


def complete(record: dict[str, Any], derived: Iterable[str]) -> Row:
    """The row that a record makes: absent is null, or worked out."""
    row = {column: typed(column, record.get(column)) for column in COLUMNS}
    sent = {name: typed(name, record.get(name)) for name in derived}
    return row | {name: DERIVED[name][1](row) if value is None else value for name, value in sent.items()}


def changed(row: Row, values: dict[str, Any], derived: Iterable[str]) -> Row:
    """The row with other values; a derived column follows unless it was set by hand, or is set now."""
    new = row | values
    for name in derived:
        worked_out = DERIVED[name][1]
        if name not in values and row[name] == worked_out(row):
            new[name] = worked_out(new)
    return new


def sort_key(value: Any) -> tuple[bool, Any]:
    """Nulls come first ascending and last descending; texts by their code points."""
    return (value is not None, 0 if value is None else value)


def _update(asked: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> Effect:
    def after(row: Row) -> Row:
        values = {column: new_value(column, v, row, typed) for column, v in asked["updates"].items()}
        return changed(row, values, derived)

    meant = _meant(asked)
    pairs: list[Pair] = [(row, after(row)) for row in rows if meant(row)]
    left = [after(row) if meant(row) else row for row in rows]
    return Effect(left, pairs, {"records_updated": len(pairs)}, _before(pairs))


def _delete(asked: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> Effect:
    meant = _meant(asked)
    pairs: list[Pair] = [(row, None) for row in rows if meant(row)]
    return Effect([row for row in rows if not meant(row)], pairs, {"records_deleted": len(pairs)}, _before(pairs))


def _overwrite(asked: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> Effect:
    new = [complete(record, derived) for record in asked["records"]]
    meant = _meant(asked)
    if not all(map(meant, new)):
        return Effect(refusal="INVALID_RECORD")
    gone: list[Pair] = [(row, None) for row in rows if meant(row)]
    left = [row for row in rows if not meant(row)]
    counts = {"records_inserted": len(new), "records_deleted": len(gone)}
    return Effect(left + new, gone + [(None, row) for row in new], counts, _before(gone))


def _upsert(asked: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> Effect:
    keys, within = asked.get("key_cols") or ["id"], _meant(asked)
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in asked["records"]:
        key = _key(record, keys)
        if key in records and asked.get("on_duplicate") != "last":
            return Effect(refusal="INVALID_RECORD")
        records[key] = record
    may = asked.get("update_cols")

    def after(row: Row) -> Row:
        record = records[_key(row, keys)]
        return changed(row, {c: typed(c, v) for c, v in record.items() if c not in keys and _listed(c, may)}, derived)

    met = [within(row) and _key(row, keys) in records for row in rows]
    left = [after(row) if is_met else row for row, is_met in zip(rows, met, strict=True)]
    held = [row for row, is_met in zip(rows, met, strict=True) if is_met]
    known = {_key(row, keys) for row in held}
    added = [record for key, record in records.items() if key not in known]
    if any(name not in record for record in added for name in REQUIRED):
        return Effect(refusal="INVALID_RECORD")
    new = [complete(record, derived) for record in added]
    become = [row for row, is_met in zip(left, met, strict=True) if is_met]
    if not all(map(within, become + new)):
        return Effect(refusal="INVALID_RECORD")
    pairs: list[Pair] = [(was, now) for was, now in zip(rows, left, strict=True) if was != now]
    counts = {
        "records_inserted": len(new),
        "records_updated": len(pairs),
        "records_unchanged": len(held) - len(pairs),
    }
    return Effect(left + new, pairs + [(None, row) for row in new], counts, held)


def _deduplicate(asked: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> Effect:
    keys, within = asked.get("key_cols") or ["id"], _meant(asked)
    inside = [row for row in rows if within(row)]
    for by in reversed(asked["order_by"]):
        descending = by.get("order") == "desc"
        nulls_first = by.get("nulls_first", not descending)

        def place(row: Row, column: str = by["field"], first: bool = nulls_first != descending) -> tuple[bool, Any]:
            is_null = row[column] is None
            return (is_null != first, 0 if is_null else row[column])

        inside.sort(key=place, reverse=descending)
    stays: dict[tuple[Any, ...], Row] = {}
    for row in inside if asked.get("keep") == "last" else reversed(inside):
        stays[_key(row, keys)] = row
    kept = {id(row) for row in stays.values()}
    pairs: list[Pair] = [(row, None) for row in inside if id(row) not in kept]
    left = [row for row in rows if id(row) in kept or not within(row)]
    return Effect(left, pairs, {"records_removed": len(pairs)}, _before(pairs))


_EFFECTS: dict[str, Callable[[dict[str, Any], list[Row], tuple[str, ...]], Effect]] = {
    "UPDATE": _update,
    "DELETE": _delete,
    "WRITE": _overwrite,
    "UPSERT": _upsert,
    "DEDUPLICATE": _deduplicate,
}


def _meant(asked: dict[str, Any]) -> Callable[[Row], bool]:
    """Whether a request is about a row, by its filters."""
    filters = [asked[name] for name in ("filter", "partition_filter") if name in asked]
    return lambda row: all(keeps(one, row) for one in filters)


def _before(pairs: Iterable[Pair]) -> list[Row]:
    return [before for before, _ in pairs if before is not None]


def _key(row: Row, keys: Iterable[str]) -> tuple[Any, ...]:
    return tuple(typed(key, row[key]) if isinstance(row[key], str) else row[key] for key in keys)


def _listed(column: str, may: list[str] | None) -> bool:
    return may is None or column in may
