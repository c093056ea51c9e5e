"""Changes that share a commit count and leave what they would if they were made one after the other."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import InvalidRecord
from service.model.edits import RECORD_NUMBER, SENT_PREFIX, MergeRule
from service.model.filters.predicates import EVERY_ROW, And, Compare, In, IsNull, Not, Or, Predicate
from service.model.keyed.apply import AppliedChanges, KeyedRows, apply_changes
from service.model.keyed.changes import AddRows, KeyedChange, MatchRows, PutRows, RowCounts, RowPlace
from service.model.keyed.conditions import computable, holds, keys_in
from service.model.keyed.pool import plain_value, same
from service.model.schema.columns import Column
from service.model.schema.definition import parse_schema
from service.model.schema.types import Primitive

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us")),
        ("score", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
Rows = list[dict[str, Any]]
NAN = float("nan")
IDS = st.one_of(st.none(), st.integers(0, 3))
REGIONS = st.sampled_from(["n", "s", None])
VALUES = {
    "price": st.sampled_from([None, Decimal("1.00"), Decimal("2.50")]),
    "at": st.sampled_from([None, datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "score": st.sampled_from([None, 0.0, -0.0, NAN, 1.5]),
}
ROW = st.fixed_dictionaries(
    {"id": IDS, "region": REGIONS, **VALUES, "tags": st.sampled_from([None, [], ["a"], ["a", None]])}
)


def column(name: str) -> Column:
    return Column(name, (name,), Primitive("string" if name == "region" else "long"))


def table(rows: Rows, columns: tuple[str, ...] = tuple(SCHEMA.names)) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in columns]))


def as_found(rows: Rows) -> KeyedRows:
    """The rows of a table, three in each file."""
    return KeyedRows(table(rows), [RowPlace(f"f{i // 3}", i % 3) for i in range(len(rows))])


def keyed(*keys: int | None) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64())})


def put(*records: dict[str, Any], keys: tuple[str, ...] = ("id",), update: tuple[str, ...] | None = None) -> PutRows:
    """An UPSERT of records with only some columns."""
    rows = table([{name: record.get(name) for name in SCHEMA.names} for record in records])
    present = [name for name in SCHEMA.names if any(name in record for record in records)]
    partly = [name for name in present if not all(name in record for record in records)]
    for name in partly:
        rows = rows.append_column(SENT_PREFIX + name, pa.array([name in record for record in records]))
    rows = rows.append_column(RECORD_NUMBER, pa.array(range(len(records)), pa.int32()))
    changed = tuple(n for n in present if n not in keys and (update is None or n in update))
    return PutRows(rows, MergeRule(keys, tuple(SCHEMA.names), changed, frozenset(partly)))


@dataclass
class Plain:
    """The same in the plainest way: a list of rows, and one request after the other."""

    rows: Rows
    counts: list[RowCounts] = field(default_factory=list)

    def put(self, records: Rows, keys: tuple[str, ...], update: tuple[str, ...] | None) -> None:
        new, updated, unchanged = [], 0, 0
        for record in records:
            key = [record.get(name) for name in keys]
            found = [r for r in self.rows if None not in key and [r[name] for name in keys] == key]
            columns = [n for n in record if n not in keys and (update is None or n in update)]
            if not found:
                new.append({name: record.get(name) for name in SCHEMA.names})
            for row in found:
                if all(_equal(row[name], record[name]) for name in columns):
                    unchanged += 1
                else:
                    updated += 1
                    row |= {name: record[name] for name in columns}
        self.rows += new
        self.counts.append(RowCounts(len(new), updated, unchanged))

    def match(self, ids: list[int], region: str | None, new: dict[str, Any] | None) -> None:
        hits = [r for r in self.rows if r["id"] in ids and (region is None or r["region"] == region)]
        if new is None:
            self.rows = [row for row in self.rows if all(row is not hit for hit in hits)]
            self.counts.append(RowCounts(deleted=len(hits)))
        else:
            for row in hits:
                row |= new
            self.counts.append(RowCounts(updated=len(hits)))


def _equal(one: Any, other: Any) -> bool:
    return same(one, other)


def canonical(rows: Rows) -> list[str]:
    return sorted(repr({name: repr(row[name]) for name in SCHEMA.names}) for row in rows)


def net(rows: Rows, applied: AppliedChanges) -> Rows:
    """The table after a commit."""
    gone = set(applied.gone)
    kept = [row for i, row in enumerate(rows) if RowPlace(f"f{i // 3}", i % 3) not in gone]
    return [*kept, *applied.new.to_pylist()]


RECORD = st.builds(
    lambda ids, some: {**ids, **some},
    st.fixed_dictionaries({"id": st.integers(0, 3), "region": REGIONS}),
    st.fixed_dictionaries({}, optional=VALUES),
)
REQUEST = st.one_of(
    st.tuples(
        st.just("put"),
        st.lists(RECORD, min_size=1, max_size=3, unique_by=lambda record: record["id"]),
        st.sampled_from([("id",), ("id", "region"), ("region", "id")]),
        st.sampled_from([None, ("price",), ("score", "at")]),
    ),
    st.tuples(
        st.just("match"),
        st.lists(st.integers(0, 3), min_size=1, max_size=2),
        st.sampled_from([None, "n"]),
        st.one_of(st.none(), st.fixed_dictionaries({}, optional={"id": st.integers(0, 3), **VALUES}).filter(bool)),
    ),
    st.tuples(st.just("add"), st.lists(ROW, min_size=1, max_size=3)),
)


@settings(max_examples=60)
@given(st.lists(ROW, max_size=8), st.lists(REQUEST, max_size=6))
def test_a_batch_counts_and_leaves_what_its_requests_would_one_after_the_other(
    rows: Rows, requests: list[tuple[Any, ...]]
) -> None:
    plain, changes = Plain([dict(row) for row in rows]), list[KeyedChange]()
    for kind, *how in requests:
        if kind == "put":
            records, keys, update = how
            plain.put(records, keys, update)
            changes.append(put(*records, keys=keys, update=update))
        elif kind == "match":
            ids, region, new = how
            plain.match(ids, region, new)
            condition: Predicate = In(column("id"), tuple(ids))
            if region is not None:
                condition = And((condition, Compare(column("region"), "eq", region)))
            changes.append(MatchRows(keyed(*ids), condition, None if new is None else table([new], tuple(new))))
        else:
            plain.rows += [dict(row) for row in how[0]]
            plain.counts.append(RowCounts(inserted=len(how[0])))
            changes.append(AddRows(table(how[0])))
    applied = apply_changes(SCHEMA, as_found(rows), changes)
    assert [change.counts for change in applied.changes] == plain.counts
    assert canonical(net(rows, applied)) == canonical(plain.rows)
    # What the ledger keeps of each request leads from the state before it to the state after it.
    state = canonical(rows)
    for change in applied.changes:
        for row in canonical(applied.pool.take(change.removed).to_pylist()):
            state.remove(row)
        state = sorted([*state, *canonical(applied.pool.take(change.added).to_pylist())])
    assert state == canonical(plain.rows)


def test_a_request_that_is_refused_does_nothing_and_the_others_go_on() -> None:
    def refuse(new: pa.Table) -> None:
        if new.num_rows:
            raise InvalidRecord("a new row needs a price", field="records[0].price")

    first = put({"id": 1, "price": Decimal(1)}, {"id": 7})
    changes: list[KeyedChange] = [PutRows(first.rows, first.how, refuse), put({"id": 1, "price": Decimal(3)})]
    applied = apply_changes(SCHEMA, as_found([{**dict.fromkeys(SCHEMA.names), "id": 1}]), changes)
    assert isinstance(applied.changes[0].refusal, InvalidRecord)
    assert applied.changes[1].counts == RowCounts(updated=1)
    assert [row["price"] for row in applied.new.to_pylist()] == [Decimal("3.00")]


def test_a_row_that_comes_and_goes_in_one_batch_is_not_written() -> None:
    changes: list[KeyedChange] = [put({"id": 5}), MatchRows(keyed(5), EVERY_ROW)]
    applied = apply_changes(SCHEMA, as_found([]), changes)
    assert [change.counts for change in applied.changes] == [RowCounts(inserted=1), RowCounts(deleted=1)]
    assert (applied.gone, applied.new.num_rows) == ((), 0)


def test_each_request_names_the_files_of_the_rows_that_it_changed() -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "id": i} for i in range(6)]
    changes: list[KeyedChange] = [
        put({"id": 1, "price": Decimal(1)}),
        MatchRows(keyed(1, 5), EVERY_ROW),
        put({"id": 3}),
    ]
    applied = apply_changes(SCHEMA, as_found(rows), changes)
    assert [change.files for change in applied.changes] == [{"f0"}, {"f0", "f1"}, frozenset()]


FLAT = parse_schema({"fields": {"id": {"type": "long"}, "region": {"type": "string"}}})
KEYED = parse_schema({"fields": {"id": {"type": "long"}, "region": {"type": "string"}}, "primary_key": ["id"]})


def test_a_filter_names_keys_by_equality_with_all_key_columns() -> None:
    by_id, by_region = In(column("id"), (1, 2)), Compare(column("region"), "eq", "n")
    assert keys_in(by_id, KEYED, 10) == {"id": [1, 2]}
    assert keys_in(And((And((by_region,)), by_id)), KEYED, 10) == {"id": [1, 2]}
    assert keys_in(And((by_region, by_id)), FLAT, 10) == {"id": [1, 2], "region": ["n", "n"]}
    for scans in (by_region, Or((by_id,)), Not(by_id), Compare(column("id"), "gt", 1), EVERY_ROW):
        assert keys_in(scans, KEYED, 10) is None
    assert keys_in(by_id, KEYED, 1) is None


NUMBER = Column("n", ("n",), Primitive("double"))


@pytest.mark.parametrize("scan", [Compare(NUMBER, "eq", 1.0), In(NUMBER, (1.0,)), Not(Compare(NUMBER, "gt", 1.0))])
def test_conditions_on_floating_point_numbers_are_left_to_spark(scan: Predicate) -> None:
    assert not computable(scan)
    assert keys_in(scan, FLAT, 10) is None


@given(st.recursive(
    st.one_of(
        st.builds(lambda n: Compare(column("id"), "gt", n), st.integers(0, 2)),
        st.builds(lambda n, null: In(column("id"), (n,), null), st.integers(0, 2), st.booleans()),
        st.just(IsNull(column("region"))),
        st.builds(lambda t: Compare(column("region"), "ne", t), st.sampled_from(["n", "s"])),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda a, b: And((a, b)), inner, inner),
        st.builds(lambda a, b: Or((a, b)), inner, inner),
    ),
    max_leaves=5,
), st.fixed_dictionaries({"id": IDS, "region": REGIONS}))  # fmt: skip
def test_nulls_leave_a_condition_open_as_arrow_does(condition: Predicate, row: dict[str, Any]) -> None:
    assert computable(condition)
    assert holds(condition, row.__getitem__) == _in_arrow(condition, table([row], ("id", "region")))


def _in_arrow(condition: Predicate, row: pa.Table) -> bool | None:
    """What Arrow, whose logic of nulls is that of SQL, makes of a condition."""

    def of(one: Predicate) -> Any:
        match one:
            case And((a, b)):
                return pc.and_kleene(of(a), of(b))
            case Or((a, b)):
                return pc.or_kleene(of(a), of(b))
            case Not(child):
                return pc.invert(of(child))
            case IsNull(at):
                return pc.is_null(row[at.name])
            case Compare(at, how, operand):
                return {"gt": pc.greater, "ne": pc.not_equal}[how](row[at.name], operand)
            case In(at, (only,), or_null):
                equal = pc.equal(row[at.name], only)
                return pc.or_kleene(equal, pa.scalar(None, pa.bool_())) if or_null else equal
        raise AssertionError(one)

    answer: bool | None = of(condition).to_pylist()[0]
    return answer


def test_literals_become_the_same_numbers_as_the_values_of_columns() -> None:
    assert plain_value(datetime(1970, 1, 1, 0, 0, 1, 5)) == 1_000_005
    assert plain_value(datetime(2024, 1, 1).date()) == 19723
