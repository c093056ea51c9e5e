"""Rules that only read."""

from collections import defaultdict
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.computed import Row
from tests.model.expected_edits import sort_key
from tests.model.logic import keeps
from tests.model.machine import Machine, row_of, same
from tests.model.requests import COLUMNS, filters, typed

_ORDERED = st.permutations(COLUMNS).flatmap(
    lambda names: st.tuples(
        *(st.fixed_dictionaries({"field": st.just(n), "order": st.sampled_from(("asc", "desc"))}) for n in names)
    )
)
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


class Reading(Machine):
    @rule(where=st.none() | filters(empty=True), sort=_ORDERED, limit=st.integers(1, 5), offset=st.integers(0, 4))
    def query(self, where: Any, sort: tuple[dict[str, str], ...], limit: int, offset: int) -> None:
        answer = self.ok(
            "QUERY", sort=list(sort), limit=limit, offset=offset, **({} if where is None else {"filter": where})
        )
        found = [row for row in self.rows if where is None or keeps(where, row)]
        for by in reversed(sort):
            found.sort(key=lambda row: sort_key(row[by["field"]]), reverse=by["order"] == "desc")
        # Rows that are equal in what they are sorted by may come in any order.
        assert list(map(given, self.rows_of(answer))) == list(map(given, found[offset : offset + limit]))
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
    def recover_previous(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(sorted(self.past)), label="snapshot")
        answer = self.ok("QUERY", as_of=snapshot_id, limit=1000)
        assert same([row_of(row) for row in answer["data"]], self.past[snapshot_id])


def given(row: Row) -> Row:
    return {column: row[column] for column in COLUMNS}


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
