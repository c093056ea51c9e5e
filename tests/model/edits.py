"""Random changes of rows in place, as the machine sends them once they fit its table."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.model.computed import DERIVED
from tests.model.expected_edits import Change
from tests.model.requests import COLUMNS, VALUES, filters, partial_records, records, updates

_KEYS: tuple[tuple[str, ...] | None, ...] = (None, None, ("id",), ("name",), ("id", "name"), ("kind",), ("day", "id"))


def _fields(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """Fields of a sent; one that is drawn as None is not sent."""
    drawn = st.fixed_dictionaries({"partition_filter": within, **fields})
    return drawn.map(lambda found: {name: value for name, value in found.items() if value is not None})


def _within(column: str) -> SearchStrategy[Any]:
    value = VALUES[column] if column in VALUES else _BY_HAND[column]
    tested = st.sampled_from(("eq", "ne", "gte", "lt")).flatmap(lambda op: value.map(lambda v: {op: v}))
    listed = st.sampled_from(("in", "not_in")).flatmap(lambda op: st.lists(value, max_size=3).map(lambda v: {op: v}))
    return st.one_of(st.just({"is_not_null": True}), st.none(), value, tested, listed)


_BY_HAND: dict[str, SearchStrategy[Any]] = {
    "initial": st.sampled_from(("A", "B", "?")),
    "score": st.sampled_from((0, 3, 8)),
    "month": st.sampled_from(("2024-01-01", "2024-02-01")),
}
within: SearchStrategy[dict[str, Any] | None] = st.one_of(
    st.none(), st.none(), st.fixed_dictionaries({column: _within(column) for column in (*COLUMNS, *DERIVED)})
)
"""A filter for each column that a table may be partitioned by; `fitted` chooses one."""

# Filters of many parts are true of few rows; those of one part have plans concern some.
_plain = st.one_of(
    VALUES["id"].map(lambda value: {"id": {"lte": value}}),
    VALUES["id"].map(lambda value: {"id": {"gte": value}}),
    VALUES["name"].map(lambda value: {"name": {"ne": value}}),
    VALUES["kind"].map(lambda value: {"or": [{"kind": value}, {"kind": None}]}),
)
_filtered = st.booleans().flatmap(lambda few: _plain if few else filters()).map(lambda found: {"filter": found})
# Seldom all of them: there should be something left to change.
_rows: SearchStrategy[dict[str, Any]] = st.integers(0, 9).flatmap(lambda n: _filtered if n else st.just({"all": True}))
update = st.builds(lambda fields, rows: Change("UPDATE", {**fields, **rows}), _fields(updates=updates), _rows)
delete = st.builds(lambda fields, rows: Change("DELETE", {**fields, **rows}), _fields(), _rows)
overwrite = _fields(records=st.lists(records, max_size=4)).map(
    lambda fields: Change("WRITE", {**fields, "mode": "overwrite"})
)
upsert = st.sampled_from(_KEYS).flatmap(
    lambda keys: _fields(
        records=st.lists(partial_records(keys or ("id",)), max_size=4),
        key_cols=st.just(keys and list(keys)),
        update_cols=st.none()
        | st.sets(st.sampled_from([c for c in COLUMNS if c not in (keys or ("id",))])).map(sorted),
        on_duplicate=st.sampled_from((None, "last", "last", "refuse")),
    ).map(lambda fields: Change("UPSERT", fields))
)
_directions = st.fixed_dictionaries(
    {}, optional={"order": st.sampled_from(("asc", "desc")), "nulls_first": st.booleans()}
)
_order = st.permutations((*COLUMNS, *DERIVED)).flatmap(
    lambda names: st.tuples(*(_directions.map(lambda d, n=name: {"field": n, **d}) for name in names)).map(list)
)
deduplicate = _fields(
    key_cols=st.none() | st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3, unique=True),
    order_by=_order,
    keep=st.sampled_from((None, "first", "last")),
).map(lambda fields: Change("DEDUPLICATE", fields))
"""By an order that tells all rows apart but those that are equal in everything."""

changes = st.one_of(update, delete, overwrite, upsert, deduplicate)


def fitted(change: Change, columns: tuple[str, ...], partitioned_by: list[str]) -> Change:
    """The change as a table with these columns takes it."""
    fields = {**change.fields}
    for name in ("updates", "records"):
        if name in fields:
            fields[name] = known(fields[name], columns)
    if "order_by" in fields:
        fields["order_by"] = [by for by in fields["order_by"] if by["field"] in columns]
    if "partition_filter" in fields:
        drawn = fields.pop("partition_filter")
        if partitioned_by:
            fields["partition_filter"] = {partitioned_by[0]: drawn[partitioned_by[0]]}
    return replace(change, fields=fields)


def known(sent: Any, columns: tuple[str, ...]) -> Any:
    """Records or updates without the derived columns that the table has not."""
    if isinstance(sent, list):
        return [known(record, columns) for record in sent]
    return {name: value for name, value in sent.items() if name in columns or name not in DERIVED}
