"""Random requests against Firn and against a list of dicts: every answer, count and refusal is the same."""

import itertools
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.harness import Firn
from tests.model.asks import (
    COLUMNS,
    PARTITIONS,
    SCHEMA,
    filters,
    partial_records,
    records,
    row_of,
    typed,
    updates,
    wrong_records,
)
from tests.model.logic import Row, keeps, new_value
from tests.strategies import json_text

_tables = itertools.count(1)
_ORDERED = st.permutations(COLUMNS).flatmap(
    lambda names: st.tuples(
        *(st.fixed_dictionaries({"field": st.just(n), "order": st.sampled_from(("asc", "desc"))}) for n in names)
    )
)


class Model(RuleBasedStateMachine):
    """One table of Firn's beside one list of rows."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        super().__init__()
        self.firn = firn
        self.address = {"tenant_id": tenant, "table": f"model-{next(_tables)}"}
        self.rows: list[Row] = []
        self.partitioned_by: list[str] = []
        self.past: dict[int, list[Row]] = {}
        self.unchecked = False

    # What changes the table.

    @initialize(by=st.sampled_from(PARTITIONS))
    def create(self, by: list[dict[str, Any]]) -> None:
        self.partitioned_by = [b["field"] for b in by]
        answer = self.ok("CREATE_TABLE", schema=SCHEMA, partition={"partitions": by}, if_not_exists=True)
        assert (answer["table_created"], answer["table_existed"]) == (True, False)

    @rule(sent=st.lists(records, max_size=6))
    def append(self, sent: list[dict[str, Any]]) -> None:
        answer = self.ok("WRITE", records=sent)
        assert answer["records_written"] == len(sent)
        self.now(answer, self.rows + [row_of(r) for r in sent])

    @rule(sent=st.lists(records, max_size=4))
    def overwrite(self, sent: list[dict[str, Any]]) -> None:
        answer = self.ok("WRITE", records=sent, mode="overwrite")
        assert answer["records_written"] == len(sent)
        self.now(answer, [row_of(r) for r in sent])

    @rule(sent=st.lists(partial_records, max_size=4, unique_by=lambda r: r["id"]), data=st.data())
    def upsert(self, sent: list[dict[str, Any]], data: st.DataObject) -> None:
        """By primary key; a key that several rows have changes them all."""
        may_change = data.draw(st.none() | st.sets(st.sampled_from(COLUMNS[1:])).map(sorted), label="update_cols")
        asked = {} if may_change is None else {"update_cols": may_change}
        known = {row["id"] for row in self.rows}
        if any(r["id"] not in known and "name" not in r for r in sent):
            self.refused("INVALID_RECORD", "UPSERT", records=sent, **asked)
            return
        changeable = set(COLUMNS[1:] if may_change is None else may_change) & {c for r in sent for c in r}
        by_id = {r["id"]: r for r in sent}
        after = []
        for row in self.rows:
            record = by_id.get(row["id"], {})
            changes = {c: typed(c, v) for c, v in record.items() if c in changeable}
            after.append(row | changes)
        answer = self.ok("UPSERT", records=sent, **asked)
        changed = sum(was != is_now for was, is_now in zip(self.rows, after, strict=True))
        same = sum(row["id"] in by_id for row in self.rows) - changed
        new = [row_of(r) for r in sent if r["id"] not in known]
        counts = tuple(answer[f"records_{what}"] for what in ("inserted", "updated", "unchanged"))
        assert counts == (len(new), changed, same)
        self.now(answer, after + new)

    @rule(changes=updates, where=filters())
    def update(self, changes: dict[str, Any], where: Any) -> None:
        hit = [keeps(where, row) for row in self.rows]
        answer = self.ok("UPDATE", updates=changes, filter=where)
        assert answer["records_updated"] == sum(hit)
        after = [row | {c: new_value(c, v, row, typed) for c, v in changes.items()} for row in self.rows]
        self.now(answer, [new if h else row for row, new, h in zip(self.rows, after, hit, strict=True)])

    @rule(where=filters())
    def delete(self, where: Any) -> None:
        left = [row for row in self.rows if not keeps(where, row)]
        answer = self.ok("DELETE", filter=where)
        assert answer["records_deleted"] == len(self.rows) - len(left)
        self.now(answer, left)

    @precondition(lambda self: self.rows)
    @rule()
    def delete_all(self) -> None:
        answer = self.ok("DELETE", all=True)
        assert answer["records_deleted"] == len(self.rows)
        self.now(answer, [])

    @rule(force=st.booleans(), some=st.booleans(), expire=st.booleans())
    def compact(self, force: bool, some: bool, expire: bool) -> None:
        """Merging changes no row, whatever it merges, and its figures add up with DESCRIBE_TABLE's."""
        asked: dict[str, Any] = {"force": force, "snapshot_retention_hours": 0 if expire else 168}
        if some and self.partitioned_by:
            asked["partition_filter"] = {self.partitioned_by[0]: {"is_not_null": True}}
        before = self.describe()
        answer = self.ok("COMPACT", **asked)
        after, stats = self.describe(), answer["stats"]
        assert (stats["files_before"], stats["files_after"]) == (before["file_count"], after["file_count"])
        assert (stats["bytes_before"], stats["bytes_after"]) == (before["total_bytes"], after["total_bytes"])
        assert stats["files_before"] - stats["files_removed"] + stats["files_added"] == stats["files_after"]
        assert answer["compacted"] == (stats["files_compacted"] > 0) == (answer["reason"] is None)
        made = 1 if answer["compacted"] else 0
        assert after["snapshot_count"] == before["snapshot_count"] + made - stats["snapshots_expired"]
        if expire:
            assert after["snapshot_count"] <= 1
            self.past.clear()
        self.now(answer, self.rows)

    # What is refused.

    @rule(sent=wrong_records(), operation=st.sampled_from(("WRITE", "UPSERT")))
    def refuse_records(self, sent: list[dict[str, Any]], operation: str) -> None:
        ids = [r["id"] for r in sent]
        if operation == "UPSERT" and len(set(ids)) < len(ids):
            return
        self.refused("INVALID_RECORD", operation, records=sent)

    @precondition(lambda self: self.rows)
    @rule(
        asked=st.sampled_from(
            (
                ("UPDATE", {"updates": {"name": None}, "all": True}, "INVALID_REQUEST"),
                ("UPDATE", {"updates": {"n": 2**31}, "all": True}, "INVALID_REQUEST"),
                ("UPDATE", {"updates": {"nn": 1}, "all": True}, "UNKNOWN_FIELD"),
                ("UPDATE", {"updates": {"n": 1}}, "INVALID_REQUEST"),
                ("DELETE", {}, "INVALID_REQUEST"),
                ("DELETE", {"filters": []}, "INVALID_REQUEST"),
                ("UPDATE", {"updates": {"n": 1}, "filter": {}}, "INVALID_REQUEST"),
                ("DELETE", {"filter": {"n": {"gt": "x"}}}, "INVALID_FILTER"),
                ("DELETE", {"filter": {"m": 1}}, "UNKNOWN_FIELD"),
                ("UPSERT", {"records": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "INVALID_RECORD"),
                ("UPSERT", {"records": [{"id": 1, "name": "a"}], "update_cols": ["id"]}, "INVALID_REQUEST"),
                ("CREATE_TABLE", {"schema": SCHEMA}, "TABLE_EXISTS"),
            )
        )
    )
    def refuse(self, asked: tuple[str, dict[str, Any], str]) -> None:
        operation, fields, code = asked
        self.refused(code, operation, **fields)

    # What reads it.

    @rule(where=st.none() | filters(empty=True), sort=_ORDERED, limit=st.integers(1, 5), offset=st.integers(0, 4))
    def query(self, where: Any, sort: tuple[dict[str, str], ...], limit: int, offset: int) -> None:
        answer = self.ok(
            "QUERY", sort=list(sort), limit=limit, offset=offset, **({} if where is None else {"filter": where})
        )
        found = [row for row in self.rows if where is None or keeps(where, row)]
        for by in reversed(sort):
            found.sort(key=lambda row: sort_key(row[by["field"]]), reverse=by["order"] == "desc")
        assert rows_of(answer) == found[offset : offset + limit]
        assert answer["metadata"]["row_count"] == len(answer["data"])
        assert answer["metadata"]["has_more"] == (len(found) > offset + limit)

    @rule(where=filters(empty=True), by=st.sampled_from((None, "kind", "day")))
    def aggregate(self, where: Any, by: str | None) -> None:
        answer = self.ok("QUERY", filters=where, group_by=[by] if by else [], aggregations=AGGREGATIONS)
        groups: dict[Any, list[Row]] = defaultdict(list)
        if by is None:
            groups[None] = []
        for row in self.rows:
            if keeps(where, row):
                groups[row[by] if by else None].append(row)
        expected = {group: aggregates(rows) for group, rows in groups.items()}
        got = {}
        for line in answer["data"]:
            group = typed(by, line.pop(by)) if by else None
            assert group not in got
            got[group] = line
        assert got == expected

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(sorted(self.past)), label="snapshot")
        assert same(rows_of(self.ok("QUERY", as_of=snapshot_id, limit=1000)), self.past[snapshot_id])

    def teardown(self) -> None:
        if self.unchecked:
            self.look()

    # How that is done.

    def ask(self, operation: str, **fields: Any) -> str:
        # The client's own text: rendering would make strings of its decimals.
        return json_text({"operation": operation, **self.address, **fields})

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        answer = self.firn.post(self.ask(operation, **fields))
        assert answer["success"], answer
        return answer

    def refused(self, code: str, operation: str, **fields: Any) -> None:
        before = self.describe()
        self.firn.fail(self.ask(operation, **fields), code)
        assert self.describe() == before, "a refused request changed the table"

    def describe(self) -> dict[str, Any]:
        description: dict[str, Any] = self.ok("DESCRIBE_TABLE")["description"]
        assert description["row_count"] == len(self.rows)
        return description

    def now(self, answer: dict[str, Any], rows: list[Row]) -> None:
        """The rows as they should be after a change that was answered."""
        self.rows = rows
        self.unchecked = True
        snapshot_id = answer["metadata"].get("snapshot_id")
        assert rows == [] or snapshot_id is not None
        if snapshot_id is not None:
            self.past[snapshot_id] = rows
        self.look()

    def look(self) -> None:
        assert same(rows_of(self.ok("QUERY", limit=1000)), self.rows)
        self.unchecked = False


AGGREGATIONS = [
    {"op": "count"},
    {"op": "count", "field": "n", "alias": "counted"},
    {"function": "count_distinct", "field": "name"},
    {"op": "sum", "field": "n"},
    {"op": "sum", "field": "price"},
    {"op": "min", "field": "day"},
    {"op": "max", "field": "name"},
    {"op": "max", "field": "price"},
]


def aggregates(rows: list[Row]) -> dict[str, Any]:
    def held(column: str) -> list[Any]:
        return [row[column] for row in rows if row[column] is not None]

    return {
        "count": len(rows),
        "counted": len(held("n")),
        "count_distinct_name": len(set(held("name"))),
        "sum_n": sum(held("n")) if held("n") else None,
        "sum_price": str(sum(held("price"))) if held("price") else None,
        "min_day": min(held("day")).isoformat() if held("day") else None,
        "max_name": max(held("name"), default=None),
        "max_price": str(max(held("price"))) if held("price") else None,
    }


def rows_of(answer: dict[str, Any]) -> list[Row]:
    for row in answer["data"]:
        assert list(row) == list(COLUMNS)
    return [row_of(row) for row in answer["data"]]


def same(one: list[Row], other: list[Row]) -> bool:
    """The same rows as often, in whatever order."""
    return Counter(map(tuple, map(dict.values, one))) == Counter(map(tuple, map(dict.values, other)))


def sort_key(value: Any) -> tuple[bool, Any]:
    """Nulls come first ascending and last descending; texts by their code points."""
    return (value is not None, 0 if value is None else value)


def run(firn: Firn, tenant: str, examples: int, steps: int, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        lambda: Model(firn, tenant),  # type: ignore[arg-type]  # it takes what makes one, too
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(300)
def test_firn_does_what_a_list_of_dicts_does(firn: Firn, tenant: str) -> None:
    # Shrinking a failure takes many times as long as finding it; the long run below does that.
    run(firn, tenant, examples=20, steps=20, phases=(Phase.generate,))


@pytest.mark.large
@pytest.mark.timeout(7200)
def test_firn_does_what_a_list_of_dicts_does_for_long(firn: Firn, tenant: str) -> None:
    run(firn, tenant, examples=150, steps=40, phases=(Phase.generate, Phase.shrink))
