"""UNDO takes back what one request did, whatever came later, and refuses where somebody touched the same rows."""

import itertools
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.edits.undo import Undos
from service.engine.jobs.edits.reversal import FewUndo, UndoFigures, UndoReversal
from service.engine.jobs.undo import FoundUndo, find_undo
from service.ledger.ledger import Ledger
from service.ledger.schema import keys
from service.model.call import Call
from service.model.names import TableName
from service.model.records import read_records
from service.model.schema.definition import describe_schema
from service.model.schema.types import Field, Primitive, TableSchema
from service.writes.writes import Writes
from tests.harness import Firn, wait_until
from tests.integration.test_every_type import ROW, WIDE, few
from tests.strategies import json_text, records, same
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable

FIELDS = {"fields": {"id": {"type": "long"}, "kind": {"type": "string"}, "n": {"type": "integer"}}}
KEYED = {"fields": {**FIELDS["fields"], "id": {"type": "long", "required": True}}, "primary_key": ["id"]}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}
Row = tuple[int, Any, int | None]

_tables = itertools.count(1)


class Shop(ServedTable):
    """A table, and what is done to it."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        super().__init__(firn, tenant, **{"schema": FIELDS, **create})

    def write(self, *rows: Row) -> str:
        return _id(self.ok("WRITE", records=[dict(zip(("id", "kind", "n"), row, strict=True)) for row in rows]))

    def update(self, n: int | None, **filter: Any) -> str:
        return _id(self.ok("UPDATE", filter=filter, updates={"n": n}))

    def delete(self, **filter: Any) -> str:
        return _id(self.ok("DELETE", filter=filter))

    def undo(self, request_id: str, **parts: Any) -> dict[str, Any]:
        return self.ok("UNDO", request_id=request_id, **parts)

    def refused(self, request_id: str, code: str, status: int, **parts: Any) -> dict[str, Any]:
        before = self.rows()
        error = self.firn.fail({"operation": "UNDO", **self.address, "request_id": request_id, **parts}, code, status)
        assert self.rows() == before
        return error

    def conflicts(self, request_id: str, **parts: Any) -> list[str]:
        ids: list[str] = self.refused(request_id, "UNDO_CONFLICT", 409, **parts)["details"]["request_ids"]
        return ids

    def rows(self) -> list[Row]:
        found = self.firn.rows(self.address["tenant_id"], "t", sort=["id", "n"])
        return [(row["id"], row["kind"], row["n"]) for row in found]

    def together(self, *writes: Iterable[Row]) -> list[str]:
        """WRITEs that share one commit; their request ids."""
        writer = self.firn.app.parts[Writes]
        with ThreadPoolExecutor(len(writes)) as pool:
            with self.firn.app.parts[Commits].locks.hold(self.loaded.uuid):
                before = writer.waiting
                asked = [pool.submit(self._written, list(rows)) for rows in writes]
                wait_until(lambda: writer.waiting == before + len(writes), 30, every=0.01)
            answers = [each.result() for each in asked]
        assert len({answer["metadata"]["snapshot_id"] for answer in answers}) == 1
        return [_id(answer) for answer in answers]

    def _written(self, rows: list[Row]) -> dict[str, Any]:
        return self.ok("WRITE", records=[dict(zip(("id", "kind", "n"), row, strict=True)) for row in rows])


def _id(answer: dict[str, Any]) -> str:
    return str(answer["metadata"]["request_id"])


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


@pytest.fixture(autouse=True)
def found_by_spark_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an UNDO of few rows finds in this process, Spark finds as well."""

    @contextmanager
    def both(session: Any, reversal: UndoReversal, few: FewUndo | None) -> Iterator[FoundUndo]:
        if few is not None:
            with find_undo(session, reversal) as found:
                assert _comparable(found.figures) == _comparable(few.figures)
        with find_undo(session, reversal, few) as found:
            yield found

    monkeypatch.setattr("service.edits.undo.find_undo", both)


def _comparable(figures: UndoFigures) -> tuple[Any, ...]:
    met = None if figures.met is None else sorted(map(repr, figures.met.to_pylist()))
    return replace(figures, met=None, files=dict(figures.files)), met


def test_a_write_is_taken_back_and_later_writes_stay(shop: Shop) -> None:
    shop.write((1, "a", 1))
    wrong = shop.write((2, "a", 2), (3, "b", None))
    shop.write((4, "a", 4))
    answer = shop.undo(wrong)
    assert (answer["undone_operation"], answer["records_removed"], answer["records_restored"]) == ("WRITE", 2, 0)
    assert shop.rows() == [(1, "a", 1), (4, "a", 4)]


def test_an_update_is_taken_back_and_changes_of_other_rows_stay(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "a", 2), (3, "a", 3))
    wrong = shop.update(0, id={"lte": 2})
    shop.update(33, id=3)
    shop.delete(id=3)
    answer = shop.undo(wrong)
    assert (answer["records_removed"], answer["records_restored"], answer["files_affected"]) == (2, 2, 1)
    assert shop.rows() == [(1, "a", 1), (2, "a", 2)]


def test_a_delete_is_taken_back_whether_it_took_whole_files_or_some_rows(shop: Shop) -> None:
    shop.write((1, "a", 1), (1, "a", 1), (2, "b", None))
    shop.write((3, "c", 3))
    some, whole = shop.delete(id=1), shop.delete(id=3)
    shop.write((9, "z", 9))
    assert shop.undo(some)["records_restored"] == 2
    assert shop.undo(whole)["records_restored"] == 1
    assert shop.rows() == [(1, "a", 1), (1, "a", 1), (2, "b", None), (3, "c", 3), (9, "z", 9)]


@pytest.mark.thorough
def test_an_edit_is_taken_back_that_wrote_a_small_file_again_and_deleted_rows_of_a_large_one_by_place(
    firn: Firn, tenant: str
) -> None:
    shop, noise = Shop(firn, tenant), Random(1)
    shop.write(*((n, noise.randbytes(1000).hex(), n) for n in range(1200)))
    shop.write((2000, "a", 5), (2001, "b", 6))
    before = shop.rows()
    # Found by a scan, since a text pattern is left to Spark.
    either = [{"n": {"lt": 2}}, {"kind": {"starts_with": "a"}, "id": {"gte": 2000}}]
    large, small = sorted(list_files(shop.loaded).data, key=lambda file: -file.rows)
    updated = shop.update(-1, **{"or": either})
    files = {file.path: file.deleted for file in list_files(shop.loaded).data}
    assert files[large.path] == 2
    assert small.path not in files
    after = [row if row[2] not in (0, 1) and row[0] != 2000 else (*row[:2], -1) for row in before]
    assert shop.rows() == sorted(after, key=lambda row: row[0])
    deleted = shop.delete(expression="n < 3")
    assert [row[0] for row in shop.rows()] == [*range(3, 1200), 2001]
    shop.undo(deleted)
    shop.undo(updated)
    assert shop.rows() == before


def test_an_upsert_an_overwrite_and_a_deduplicate_are_taken_back(shop: Shop) -> None:
    shop.write((1, "a", 1), (1, "a", 1), (2, "b", 2))
    before = shop.rows()
    records = [{"id": 2, "kind": "b", "n": 20}, {"id": 3, "kind": "c", "n": 30}]
    upsert = _id(shop.ok("UPSERT", records=records, key_cols=["id"]))
    answer = shop.undo(upsert)
    assert (answer["undone_operation"], answer["records_removed"], answer["records_restored"]) == ("UPSERT", 2, 1)
    assert shop.rows() == before
    once = _id(shop.ok("DEDUPLICATE", key_cols=["id"]))
    assert shop.undo(once)["records_restored"] == 1
    assert shop.rows() == before
    over = _id(shop.ok("WRITE", mode="overwrite", records=[{"id": 7, "kind": "x", "n": 7}]))
    shop.write((8, "y", 8))
    shop.undo(over)
    assert shop.rows() == [*before, (8, "y", 8)]


def test_what_later_changes_touched_is_refused_with_their_request_ids(shop: Shop) -> None:
    wrong = shop.write((1, "a", 1), (2, "a", 2))
    shop.update(20, id=5)
    first, second = shop.update(10, id=1), shop.delete(id=2)
    assert shop.conflicts(wrong) == [first, second]
    assert shop.conflicts(wrong, dry_run=True) == [first, second]
    assert shop.rows() == [(1, "a", 10)]


@pytest.mark.thorough
def test_a_row_that_was_changed_and_changed_back_was_touched(shop: Shop) -> None:
    wrong = shop.write((1, "a", 1), (2, "a", 2))
    there, back = shop.update(10, id=1), shop.update(1, id=1)
    assert shop.conflicts(wrong) == [there, back]
    assert shop.rows() == [(1, "a", 1), (2, "a", 2)]


@pytest.mark.thorough
@pytest.mark.parametrize("partition", [None, BY_KIND])
def test_what_touched_the_rows_that_came_in_their_place_is_named_too_so_all_of_it_can_be_undone(
    firn: Firn, tenant: str, partition: dict[str, Any] | None
) -> None:
    shop = Shop(firn, tenant, **({"partition": partition} if partition else {}))
    wrong = shop.write((1, "a", 1), (2, "a", 2))
    shop.write((3, "a", 3), (4, "b", 4))
    first = shop.update(10, id=1)
    shop.update(30, id=3)
    shop.update(40, id=4)
    moved = _id(shop.ok("UPDATE", filter={"id": 1}, updates={"kind": "b"}))
    last = shop.delete(id={"lte": 1})
    assert shop.conflicts(wrong) == [first, moved, last]
    for one in (last, moved, first, wrong):
        shop.undo(one)
    assert shop.rows() == [(3, "a", 30), (4, "b", 40)]


@pytest.mark.thorough
def test_rows_that_came_back_are_found_where_they_are(shop: Shop) -> None:
    write = shop.write((1, "a", 1), (2, "a", 2))
    update = shop.update(10, id=1)
    some, whole = shop.delete(id=1), shop.delete(id=2)
    shop.undo(some)
    again = _id(shop.undo(whole))
    shop.undo(again)
    shop.undo(_id(shop.undo(whole)))
    shop.undo(update)
    assert shop.rows() == [(1, "a", 1)]
    assert shop.conflicts(write) == [whole]
    shop.undo(whole)
    shop.undo(write)
    assert shop.rows() == []


@pytest.mark.thorough
def test_an_earlier_change_of_rows_like_those_that_came_in_their_place_is_not_named(shop: Shop) -> None:
    wrong = shop.write((1, "a", 1))
    shop.write((1, "a", 10))
    shop.ok("COMPACT", force=True)
    shop.ok("DELETE", filter={"n": 10})
    later = _id(shop.ok("UPDATE", filter={"n": 1}, updates={"n": 10}))
    assert shop.conflicts(wrong) == [later]


@pytest.mark.thorough
def test_an_upsert_whose_other_rows_were_changed_since_is_named_with_those_changes(shop: Shop) -> None:
    wrong = shop.write((1, "a", 1))
    records = [{"id": 1, "kind": "a", "n": 5}, {"id": 2, "kind": "a", "n": 6}]
    upsert = _id(shop.ok("UPSERT", records=records, key_cols=["id"]))
    other = shop.update(7, id=2)
    assert shop.conflicts(upsert) == [other]
    assert shop.conflicts(wrong) == [upsert, other]


@pytest.mark.thorough
def test_changes_are_undone_one_after_the_other_and_redone(shop: Shop) -> None:
    write = shop.write((1, "a", 1), (2, "a", 2))
    first, second = shop.update(10, id=1), shop.update(100, id=1)
    assert shop.conflicts(first) == [second]
    undo_second = _id(shop.undo(second))
    assert shop.rows() == [(1, "a", 10), (2, "a", 2)]
    assert shop.conflicts(second) == [undo_second]
    undo_first = _id(shop.undo(first))
    assert shop.rows() == [(1, "a", 1), (2, "a", 2)]
    shop.undo(undo_first)
    assert shop.rows() == [(1, "a", 10), (2, "a", 2)]
    assert shop.conflicts(write) == [first]
    shop.undo(first)
    shop.undo(write)
    assert shop.rows() == []


@pytest.mark.thorough
def test_rows_do_not_come_back_where_later_rows_have_their_primary_key(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, schema=KEYED)
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.delete(id=1)
    again, _ = shop.together([(1, "b", 5)], [(3, "c", 3)])
    assert shop.conflicts(wrong) == [again]
    shop.undo(again)
    shop.undo(wrong)
    assert shop.rows() == [(1, "a", 1), (2, "a", 2), (3, "c", 3)]


@pytest.mark.thorough
def test_rows_come_back_beside_rows_that_had_their_key_before(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, schema=KEYED)
    shop.write((1, "a", 1), (1, "b", 2))
    wrong = shop.delete(kind="a")
    shop.update(20, kind="b")
    later = shop.conflicts(wrong)
    shop.undo(later[0])
    shop.undo(wrong)
    assert shop.rows() == [(1, "a", 1), (1, "b", 2)]


@pytest.mark.thorough
def test_rows_do_not_come_back_where_an_upsert_brought_their_key(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.delete(id=1)
    upsert = _id(shop.ok("UPSERT", records=[{"id": 1, "kind": "n", "n": 0}], key_cols=["id"]))
    assert shop.conflicts(wrong) == [upsert]


@pytest.mark.thorough
def test_the_keys_of_an_upsert_count_under_the_names_that_their_columns_have_now(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.delete(id=1)
    upsert = _id(shop.ok("UPSERT", records=[{"id": 1, "kind": "n", "n": 0}], key_cols=["id"]))
    shop.ok("ALTER_TABLE", rename_columns={"id": "code"})
    error = shop.firn.fail({"operation": "UNDO", **shop.address, "request_id": wrong}, "UNDO_CONFLICT", 409)
    assert error["details"]["request_ids"] == [upsert]


@pytest.mark.thorough
@pytest.mark.parametrize("partition", [None, BY_KIND])
def test_a_write_that_shared_a_batch_is_undone_for_its_own_rows_only(
    firn: Firn, tenant: str, partition: dict[str, Any] | None
) -> None:
    shop = Shop(firn, tenant, **({"partition": partition} if partition else {}))
    ids = shop.together(
        [(1, "a", 1), (2, "b", 2), (9, "b", 9)],
        [(3, "a", 3), (3, "a", 3)],
        [(4, "b", 4), (9, "b", 9)],
        [(5, "a", 5), (6, "b", None), (7, "a", 7), (8, "b", 8)],
    )
    everything = shop.rows()
    assert shop.undo(ids[1])["records_removed"] == 2
    assert shop.rows() == [row for row in everything if row[0] != 3]
    assert shop.undo(ids[2])["records_removed"] == 2
    assert [row[0] for row in shop.rows()] == [1, 2, 5, 6, 7, 8, 9]
    assert shop.undo(ids[3])["records_removed"] == 4
    assert shop.rows() == [(1, "a", 1), (2, "b", 2), (9, "b", 9)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    thorough_after(
        2,
        [
            [{"rename_columns": {"kind.city": "town"}}],
            [{"add_columns": {"kind.zip": {"type": "string"}}}],
            [{"move_columns": [{"column": "kind.country", "first": True}]}],
            [{"drop_columns": ["kind.country"]}],
            [{"drop_columns": ["n"]}],
            [{"rename_columns": {"n": "m", "kind": "place"}}, {"add_columns": {"n": {"type": "string"}}}],
        ],
    ),
    ids=json.dumps,
)
def test_a_write_that_shared_a_batch_is_undone_whatever_became_of_the_columns(
    firn: Firn, tenant: str, changes: list[dict[str, Any]]
) -> None:
    place = {"type": "struct", "fields": {"city": {"type": "string"}, "country": {"type": "string"}}}
    shop = Shop(firn, tenant, schema={"fields": {**FIELDS["fields"], "kind": place}})
    bern, chur = {"city": "Bern", "country": "CH"}, {"city": "Chur", "country": "CH"}
    small, large = shop.together([(1, bern, 1)], [(2, chur, 2), (3, None, 3)])
    for change in changes:
        shop.ok("ALTER_TABLE", **change)
    assert shop.undo(small)["records_removed"] == 1
    assert sorted(row["id"] for row in shop.firn.rows(tenant, "t")) == [2, 3]
    assert shop.undo(large)["records_removed"] == 2
    assert shop.firn.rows(tenant, "t") == []


@pytest.mark.parametrize("partition", thorough_after(1, [None, BY_KIND]))
def test_what_was_compacted_and_repartitioned_since_is_undone(
    firn: Firn, tenant: str, partition: dict[str, Any] | None
) -> None:
    shop = Shop(firn, tenant, **({"partition": partition} if partition else {}))
    shop.write((1, "a", 1))
    mine, _ = shop.together([(2, "a", 2), (3, "b", 3)], [(4, "a", 4)])
    wrong = shop.update(10, id=1)
    shop.ok("COMPACT", force=True)
    transform = {"half": {"expression": "id / 2"}}
    shop.ok("REPARTITION", partition={"partitions": [{"field": "half", "transform": "identity"}]}, transform=transform)
    shop.write((5, "c", 5))
    shop.undo(wrong)
    shop.undo(mine)
    assert shop.rows() == [(1, "a", 1), (4, "a", 4), (5, "c", 5)]
    halves = shop.firn.rows(shop.address["tenant_id"], "t", sort=["id"], projection=["half"])
    assert [row["half"] for row in halves] == [0.5, 2.0, 2.5]


@pytest.mark.thorough
def test_an_append_whose_snapshot_has_expired_is_undone(shop: Shop) -> None:
    shop.write((1, "a", 1))
    mine, _other = shop.together([(2, "a", 2)], [(3, "a", 3)])
    shop.update(30, id=3)
    shop.write((4, "a", 4))
    keep = shop.loaded.snapshots()
    appends = [s.snapshot_id for s in keep if s.summary["operation"] == "append"][:-1]
    shop.sql(f"CALL firn.system.expire_snapshots(table => '{_plain(shop)}', snapshot_ids => array({appends[0]}L))")
    shop.undo(mine)
    assert shop.rows() == [(1, "a", 1), (3, "a", 30), (4, "a", 4)]


@pytest.mark.thorough
def test_states_of_changes_stay_for_undo(shop: Shop) -> None:
    shop.ok("SET_COMPACTION", snapshots={"keep_last": 1, "hourly_for_hours": 0, "keep_at_most": 1})
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.update(10, id=1)
    for i in range(40):
        shop.write((100 + i, "w", i))
    wait_until(lambda: len(shop.loaded.snapshots()) < 30, 60)
    shop.undo(wrong)
    assert shop.rows()[:2] == [(1, "a", 1), (2, "a", 2)]


def test_what_an_expiry_by_age_took_cannot_be_undone(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.update(10, id=1)
    shop.write((3, "a", 3))
    shop.ok("COMPACT", force=True, expire_snapshots=True, snapshot_retention_hours=0)
    assert "can no longer be undone" in shop.refused(wrong, "UNDO_TOO_LATE", 409)["message"]


def test_beyond_the_retention_it_is_refused_saying_why(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, properties={"edits": {"undo_retention_hours": 0}})
    error = shop.refused(shop.write((1, "a", 1)), "UNDO_TOO_LATE", 409)
    assert error["field"] == "request_id"
    assert "undo_retention_hours" in error["message"]


def test_requests_that_are_no_changes_of_rows_are_refused(shop: Shop) -> None:
    shop.write((1, "a", 1))
    shop.write((2, "a", 2))
    nothing = shop.update(5, id=77)
    compact = _id(shop.ok("COMPACT", force=True))
    query = _id(shop.ok("QUERY"))
    assert "changed no row" in shop.refused(nothing, "INVALID_REQUEST", 400)["message"]
    shop.refused(query, "REQUEST_NOT_FOUND", 404)
    shop.refused("nobody's", "REQUEST_NOT_FOUND", 404)
    shop.refused("%", "REQUEST_NOT_FOUND", 404)
    assert "was a COMPACT" in shop.refused(compact, "INVALID_REQUEST", 400)["message"]


def test_an_id_that_several_changes_had_needs_the_snapshot(shop: Shop) -> None:
    answers = []
    for i in (1, 2):
        request = {"operation": "WRITE", **shop.address, "records": [{"id": i, "kind": "a", "n": i}]}
        response = shop.firn.client.post("/database", json=request, headers={"X-Request-Id": "twice"})
        answers.append(response.json())
    assert [a["metadata"]["request_id"] for a in answers] == ["twice", "twice"]
    assert shop.refused("twice", "INVALID_REQUEST", 400)["field"] == "snapshot_id"
    shop.undo("twice", snapshot_id=answers[0]["metadata"]["snapshot_id"])
    assert shop.rows() == [(2, "a", 2)]


def test_an_undo_that_waited_for_a_change_of_columns_is_made_of_the_columns_there_are_then(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "b", 2))
    wrong, found = shop.delete(id=1), shop.loaded
    shop.ok("ALTER_TABLE", add_columns={"colour": {"type": "string"}}, rename_columns={"kind": "sort"})
    shop.ok("UPDATE", updates={"colour": "red"}, all=True)
    shop.firn.app.parts[Undos].run(found, wrong, None, lambda table: None, Call("undo-1"))
    rows = shop.firn.rows(shop.address["tenant_id"], "t", sort=["id"])
    assert [(row["id"], row["sort"], row["colour"]) for row in rows] == [(1, "a", None), (2, "b", "red")]


def test_a_dry_run_shows_what_the_undo_then_does(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.update(10, id=1)
    dry = shop.undo(wrong, dry_run=True)["plan"]
    assert shop.rows() == [(1, "a", 10), (2, "a", 2)]
    assert dry["sample"] == [
        {"before": {"id": 1, "kind": "a", "n": 10}},
        {"after": {"id": 1, "kind": "a", "n": 1}},
    ]
    done = shop.undo(wrong, create_backup=True)
    figures = ("records_removed", "records_restored", "files_affected", "undone_operation")
    assert [done[f] for f in figures] == [dry[f] for f in figures]
    shop.ok("RESTORE_BACKUP", name=done["backup"])
    assert shop.rows() == [(1, "a", 10), (2, "a", 2)]


def test_with_a_key_it_happens_once(shop: Shop) -> None:
    wrong = shop.write((1, "a", 1))
    one = shop.undo(wrong, idempotency_key="k")
    assert shop.undo(wrong, idempotency_key="k") == one
    assert shop.rows() == []


@pytest.mark.parametrize("door", ["WRITE", "UPDATE", "records"])
def test_a_change_whose_answer_was_lost_is_undone_by_the_id_that_its_retry_is_answered(shop: Shop, door: str) -> None:
    shop.write((1, "a", 1))
    before, where, client = shop.rows(), f"/tables/{shop.address['tenant_id']}/default/t/records", shop.firn.client
    how: dict[str, Any] = {"WRITE": {"records": [{"id": 2}]}, "UPDATE": {"filter": {"id": 1}, "updates": {"n": 2}}}

    def send(request_id: str) -> Any:
        headers = {"X-Request-Id": request_id, "Idempotency-Key": "k"}
        if door == "records":
            return client.post(where, content='{"id": 2}\n', headers=headers | {"Content-Type": "application/x-ndjson"})
        return client.post("/database", json={"operation": door, **shop.address, **how[door]}, headers=headers)

    send("first")
    with shop.firn.app.parts[Ledger]._writing() as ledger:
        ledger.execute(update(keys).values(answer=None))
    again = send("second")
    assert (again.headers["X-Request-Id"], _id(again.json())) == ("second", "first")
    shop.undo(_id(again.json()))
    assert shop.rows() == before


@pytest.mark.thorough
def test_a_restore_is_undone(shop: Shop) -> None:
    shop.write((1, "a", 1))
    backup = shop.ok("DELETE", all=True, create_backup=True)["backup"]
    shop.write((2, "a", 2))
    restored = _id(shop.ok("RESTORE_BACKUP", name=backup))
    assert shop.rows() == [(1, "a", 1)]
    shop.undo(restored)
    assert shop.rows() == [(2, "a", 2)]


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["RESTORE_BACKUP", "ROLLBACK"])
def test_rows_that_a_restore_brought_back_do_not_come_back_twice(shop: Shop, how: str) -> None:
    shop.write((1, "a", 1), (2, "a", 2))
    before = shop.loaded.current_snapshot_id
    answer = shop.ok("DELETE", filter={"id": 1}, create_backup=True)
    asked = {"name": answer["backup"]} if how == "RESTORE_BACKUP" else {"as_of": before, "confirm": True}
    wrong, restored = _id(answer), _id(shop.ok(how, **asked))
    assert shop.conflicts(wrong) == shop.conflicts(wrong, dry_run=True) == [restored]
    again = shop.delete(id=1)
    assert shop.conflicts(wrong) == [restored, again]
    for one in (again, restored, wrong):
        shop.undo(one)
    assert shop.rows() == [(1, "a", 1), (2, "a", 2)]


@pytest.mark.thorough
def test_rows_that_a_restore_brought_back_and_another_took_away_come_back(shop: Shop) -> None:
    shop.write((1, "a", 1))
    wrong = shop.ok("DELETE", filter={"id": 1}, create_backup=True)
    gone = shop.loaded.current_snapshot_id
    shop.ok("RESTORE_BACKUP", name=wrong["backup"])
    shop.ok("ROLLBACK", as_of=gone)
    shop.undo(_id(wrong))
    assert shop.rows() == [(1, "a", 1)]


@pytest.mark.thorough
def test_a_deduplicate_is_not_undone_once_a_restore_brought_its_rows_back(shop: Shop) -> None:
    shop.write((1, "a", 1), (1, "a", 1))
    answer = shop.ok("DEDUPLICATE", key_cols=["id"], create_backup=True)
    restored = _id(shop.ok("RESTORE_BACKUP", name=answer["backup"]))
    assert shop.conflicts(_id(answer)) == [restored]


@pytest.mark.thorough
def test_a_deduplicate_that_left_one_of_equal_rows_touched_them_all(shop: Shop) -> None:
    first, second = shop.write((1, "a", 1)), shop.write((1, "a", 1))
    other = shop.write((2, "a", 2))
    once = _id(shop.ok("DEDUPLICATE", key_cols=["id"]))
    assert shop.conflicts(first) == shop.conflicts(second) == [once]
    shop.undo(other)
    shop.undo(once)
    shop.undo(first)
    assert shop.rows() == [(1, "a", 1)]


@pytest.mark.thorough
def test_a_restore_of_other_rows_is_no_conflict(shop: Shop) -> None:
    shop.write((1, "a", 1), (2, "a", 2))
    wrong = shop.delete(id=1)
    backup = shop.ok("DELETE", filter={"id": 2}, create_backup=True)["backup"]
    shop.ok("RESTORE_BACKUP", name=backup)
    shop.undo(wrong)
    assert shop.rows() == [(1, "a", 1), (2, "a", 2)]


@pytest.mark.thorough
def test_rows_another_program_deleted_are_a_conflict(shop: Shop) -> None:
    wrong = shop.write((1, "a", 1), (2, "a", 2))
    shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    shop.sql("DELETE FROM {t} WHERE id = 1")
    [who] = shop.conflicts(wrong)
    assert who.startswith("snapshot ")
    other = shop.write((5, "a", 5))
    shop.undo(other)
    assert shop.rows() == [(2, "a", 2)]


@pytest.mark.thorough
@pytest.mark.timeout(400)
@settings(few(2), phases=[Phase.generate])  # shrinking these tables takes minutes
@given(st.data())
def test_whatever_types_rows_have_those_of_a_shared_batch_are_told_apart(
    firn: Firn, tenant: str, data: st.DataObject
) -> None:
    table = {"tenant_id": tenant, "table": f"wide-{next(_tables)}"}
    schema = TableSchema((Field(ROW, Primitive("long"), True), *WIDE.fields))
    firn.ok({"operation": "CREATE_TABLE", **table, "schema": describe_schema(schema)})
    numbers = itertools.count()
    requests = [[{ROW: next(numbers), **row} for row in data.draw(records(WIDE, min_size=1))] for _ in range(3)]
    sent = [json_text({"operation": "WRITE", **table, "records": rows}) for rows in requests]
    parts, name = firn.app.parts, TableName(tenant, "default", table["table"])
    with ThreadPoolExecutor(3) as pool:
        with parts[Commits].locks.hold(parts[Catalog].load(name).uuid):
            answers = []
            for text in sent:  # in this order
                answers.append(pool.submit(firn.post, text))
                wait_until(lambda: parts[Writes].waiting == len(answers), 30, every=0.01)
        done = [answer.result() for answer in answers]
    assert len({answer["metadata"]["snapshot_id"] for answer in done}) == 1
    for n in (1, 0, 2):
        firn.ok({"operation": "UNDO", **table, "request_id": _id(done[n])})
        requests[n] = []
        left = [row for rows in requests for row in rows]
        found = firn.rows(tenant, table["table"], sort=[ROW])
        assert same(read_records(schema, found), read_records(schema, left))


@pytest.mark.thorough
def test_a_rollback_is_undone_and_history_tells(shop: Shop) -> None:
    first = shop.ok("WRITE", records=[{"id": 1, "kind": "a", "n": 1}])["metadata"]["snapshot_id"]
    shop.update(10, id=1)
    shop.write((2, "a", 2))
    rolled = _id(shop.ok("ROLLBACK", as_of=first, confirm=True))
    assert shop.rows() == [(1, "a", 1)]
    undo = shop.undo(rolled)
    assert (undo["undone_operation"], undo["records_removed"], undo["records_restored"]) == ("ROLLBACK", 1, 2)
    assert shop.rows() == [(1, "a", 10), (2, "a", 2)]
    newest = shop.ok("HISTORY")["snapshots"][0]
    assert newest["request_ids"] == [_id(undo)]


@pytest.mark.thorough
def test_a_reinitialised_table_gets_its_rows_back(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, schema=KEYED)
    shop.write((1, "a", 1), (5, "b", 5))
    wrong = _id(shop.ok("REINITIALISE_TABLE", split_points=["3"], confirm=True))
    shop.write((8, "c", 8))
    mine, _ = shop.together([(2, "a", 2), (9, "c", 9)], [(4, "b", 4)])
    assert shop.undo(wrong)["records_restored"] == 2
    shop.undo(mine)
    assert shop.rows() == [(1, "a", 1), (4, "b", 4), (5, "b", 5), (8, "c", 8)]


@pytest.mark.thorough
def test_a_renamed_table_still_knows_its_changes(shop: Shop) -> None:
    shop.write((1, "a", 1))
    wrong = shop.update(10, id=1)
    shop.ok("RENAME_TABLE", new_name="other")
    shop.address["table"] = "other"
    request = {"operation": "UNDO", **shop.address, "request_id": wrong}
    assert shop.firn.ok(request)["records_restored"] == 1


def test_a_bulk_load_is_undone(shop: Shop) -> None:
    shop.write((1, "a", 1))
    lines = "\n".join(f'{{"id": {i}, "kind": "k", "n": {i}}}' for i in range(2, 500))
    where = f"/tables/{shop.address['tenant_id']}/default/t/records"
    response = shop.firn.client.post(where, content=lines, headers={"Content-Type": "application/x-ndjson"})
    answer = shop.undo(_id(response.json()))
    assert (answer["records_removed"], shop.rows()) == (498, [(1, "a", 1)])


@pytest.mark.thorough
def test_while_others_write_an_undo_takes_back_its_change_and_nothing_else(shop: Shop) -> None:
    shop.write(*((i, "old", i) for i in range(20)))
    wrong = shop.update(-1, kind="old")
    with ThreadPoolExecutor(6) as pool:
        writes = [pool.submit(shop.write, (100 + i, "new", i)) for i in range(30)]
        undone = pool.submit(shop.undo, wrong)
        assert [write.result() for write in writes]
        assert undone.result()["records_restored"] == 20
    assert shop.rows() == [(i, "old", i) for i in range(20)] + [(100 + i, "new", i) for i in range(30)]


def _plain(shop: Shop) -> str:
    namespace, table = shop.loaded.name.identifier
    return f"{namespace}.{table}"


@pytest.mark.thorough
def test_an_undo_runs_as_a_job_that_shows_its_rows(shop: Shop) -> None:
    shop.write(*((i, "a", i) for i in range(50)))
    changed = shop.update(-1, id={"lt": 20})
    answer = shop.firn.post({"operation": "UNDO", **shop.address, "request_id": changed, "async": True})
    assert answer["success"], answer
    assert "undone_operation" not in answer

    def job() -> dict[str, Any]:
        found: dict[str, Any] = shop.firn.client.get(f"/jobs/{answer['job_id']}").json()["job"]
        return found

    wait_until(lambda: job()["state"] == "done", 60)
    ended = job()
    assert (ended["kind"], ended["result"]["records_restored"], ended["result"]["records_removed"]) == ("UNDO", 20, 20)
    progress = ended["progress"]
    assert (progress["phase"], progress["files_total"]) == ("done", 1)
    assert progress["records_done"] == progress["records_total"] == 50
    assert {"records_per_s", "remaining_ms"} <= progress.keys()
    assert sorted(shop.rows()) == [(i, "a", i) for i in range(50)]
