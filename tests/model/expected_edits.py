"""The expected result of an edit, computed over a list of dicts from the contract alone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.model.computed import DERIVED, Row
from tests.model.logic import keeps, new_value
from tests.model.requests import COLUMNS, typed

Pair: TypeAlias = tuple[Row | None, Row | None]
"""A row before and after; None where it is not there."""
REQUIRED = ("id", "name")


@dataclass(frozen=True)
class Change:
    """A request that changes rows in place, but for its address."""

    operation: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class ExpectedEdit:
    """The expected result of a change. If it is refused, only the code counts."""

    rows: list[Row] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    """The rows that it changes, takes away and adds."""
    counts: dict[str, int] = field(default_factory=dict)
    held: list[Row] = field(default_factory=list)
    """The rows that must be the same for a plan to hold."""
    refusal: str = ""


def expected_edit(change: Change, rows: list[Row], derived: Iterable[str]) -> ExpectedEdit:
    """The expected result of a change of these rows, in a table with these derived columns."""
    return _EXPECTED_EDITS[change.operation](change.fields, rows, tuple(derived))


def complete(record: dict[str, Any], derived: Iterable[str]) -> Row:
    """The row that a record makes: absent is null, or computed."""
    row = {column: typed(column, record.get(column)) for column in COLUMNS}
    sent = {name: typed(name, record.get(name)) for name in derived}
    return row | {name: DERIVED[name][1](row) if value is None else value for name, value in sent.items()}


def changed(row: Row, values: dict[str, Any], derived: Iterable[str]) -> Row:
    """The row with other values; a derived column follows unless it was set by hand, or is set now."""
    new = row | values
    for name in derived:
        compute = DERIVED[name][1]
        if name not in values and row[name] == compute(row):
            new[name] = compute(new)
    return new


def sort_key(value: Any) -> tuple[bool, Any]:
    """Nulls come first ascending and last descending; texts by their code points."""
    return (value is not None, 0 if value is None else value)


def _update(request: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> ExpectedEdit:
    def after(row: Row) -> Row:
        values = {column: new_value(column, v, row, typed) for column, v in request["updates"].items()}
        return changed(row, values, derived)

    selected = _selected(request)
    pairs: list[Pair] = [(row, after(row)) for row in rows if selected(row)]
    left = [after(row) if selected(row) else row for row in rows]
    return ExpectedEdit(left, pairs, {"records_updated": len(pairs)}, _before(pairs))


def _delete(request: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> ExpectedEdit:
    selected = _selected(request)
    pairs: list[Pair] = [(row, None) for row in rows if selected(row)]
    return ExpectedEdit(
        [row for row in rows if not selected(row)], pairs, {"records_deleted": len(pairs)}, _before(pairs)
    )


def _overwrite(request: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> ExpectedEdit:
    new = [complete(record, derived) for record in request["records"]]
    selected = _selected(request)
    if not all(map(selected, new)):
        return ExpectedEdit(refusal="INVALID_RECORD")
    gone: list[Pair] = [(row, None) for row in rows if selected(row)]
    left = [row for row in rows if not selected(row)]
    counts = {"records_inserted": len(new), "records_deleted": len(gone)}
    return ExpectedEdit(left + new, gone + [(None, row) for row in new], counts, _before(gone))


def _upsert(request: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> ExpectedEdit:
    keys, within = request.get("key_cols") or ["id"], _selected(request)
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in request["records"]:
        key = _key(record, keys)
        if key in records and request.get("on_duplicate") != "last":
            return ExpectedEdit(refusal="INVALID_RECORD")
        records[key] = record
    may = request.get("update_cols")

    def after(row: Row) -> Row:
        record = records[_key(row, keys)]
        return changed(row, {c: typed(c, v) for c, v in record.items() if c not in keys and _listed(c, may)}, derived)

    met = [within(row) and _key(row, keys) in records for row in rows]
    left = [after(row) if is_met else row for row, is_met in zip(rows, met, strict=True)]
    held = [row for row, is_met in zip(rows, met, strict=True) if is_met]
    known = {_key(row, keys) for row in held}
    added = [record for key, record in records.items() if key not in known]
    if any(name not in record for record in added for name in REQUIRED):
        return ExpectedEdit(refusal="INVALID_RECORD")
    new = [complete(record, derived) for record in added]
    become = [row for row, is_met in zip(left, met, strict=True) if is_met]
    if not all(map(within, become + new)):
        return ExpectedEdit(refusal="INVALID_RECORD")
    pairs: list[Pair] = [(was, now) for was, now in zip(rows, left, strict=True) if was != now]
    counts = {
        "records_inserted": len(new),
        "records_updated": len(pairs),
        "records_unchanged": len(held) - len(pairs),
    }
    return ExpectedEdit(left + new, pairs + [(None, row) for row in new], counts, held)


def _deduplicate(request: dict[str, Any], rows: list[Row], derived: tuple[str, ...]) -> ExpectedEdit:
    keys, within = request.get("key_cols") or ["id"], _selected(request)
    inside = [row for row in rows if within(row)]
    for by in reversed(request["order_by"]):
        descending = by.get("order") == "desc"
        nulls_first = by.get("nulls_first", not descending)

        def place(row: Row, column: str = by["field"], first: bool = nulls_first != descending) -> tuple[bool, Any]:
            is_null = row[column] is None
            return (is_null != first, 0 if is_null else row[column])

        inside.sort(key=place, reverse=descending)
    stays: dict[tuple[Any, ...], Row] = {}
    for row in inside if request.get("keep") == "last" else reversed(inside):
        stays[_key(row, keys)] = row
    kept = {id(row) for row in stays.values()}
    pairs: list[Pair] = [(row, None) for row in inside if id(row) not in kept]
    left = [row for row in rows if id(row) in kept or not within(row)]
    return ExpectedEdit(left, pairs, {"records_removed": len(pairs)}, _before(pairs))


_EXPECTED_EDITS: dict[str, Callable[[dict[str, Any], list[Row], tuple[str, ...]], ExpectedEdit]] = {
    "UPDATE": _update,
    "DELETE": _delete,
    "WRITE": _overwrite,
    "UPSERT": _upsert,
    "DEDUPLICATE": _deduplicate,
}


def _selected(request: dict[str, Any]) -> Callable[[Row], bool]:
    """Whether a request's filters select a row."""
    filters = [request[name] for name in ("filter", "partition_filter") if name in request]
    return lambda row: all(keeps(one, row) for one in filters)


def _before(pairs: Iterable[Pair]) -> list[Row]:
    return [before for before, _ in pairs if before is not None]


def _key(row: Row, keys: Iterable[str]) -> tuple[Any, ...]:
    return tuple(typed(key, row[key]) if isinstance(row[key], str) else row[key] for key in keys)


def _listed(column: str, may: list[str] | None) -> bool:
    return may is None or column in may
