"""Edits of rows by key wait with the WRITEs of their table, share its commits, and are told each what it did."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.catalog.files.columns import UnreadableFile
from service.catalog.files.data_files import DataFile
from service.catalog.files.key_lookup import KeyHits
from service.catalog.tables import Table
from service.commits.holds import SnapshotHolds
from service.edits.keyed import keyed_change
from service.edits.upsert import prepare, refuse_incomplete, updatable
from service.engine.jobs.edit import FoundRows
from service.errors import Cancelled, CommitConflict, EngineUnavailable, FirnError, InvalidRecord, KeyBusy
from service.ledger.requests import requests_by_batch
from service.ledger.undo_records import UndoRecords
from service.model.call import Call, IdempotencyKey
from service.model.edits import Assignment, ByFilter, ByKey, Edit
from service.model.expressions.assigned import read_assignment
from service.model.filters.filters import parse_request_filter
from service.model.keyed.changes import KeyedChange
from service.model.names import EDIT_PROPERTY, KEYS_PROPERTY
from service.model.schema.columns import columns_of
from service.model.schema.definition import parse_schema
from service.settings import CompactionSettings, IcebergSettings, Settings, WriteQueueSettings
from service.settings.kinds import RowLevel
from service.writes.entry import WriteOutcome
from service.writes.keyed.cost import choose_files, share_rewrite
from service.writes.keyed.edit import PendingEdit, SharedEditOutcome
from service.writes.keyed.plan import KeyFiles
from service.writes.writes import Writes
from tests.fakes import Rows
from tests.harness import wait_until
from tests.unit.commit_setup import NEW, CommitSetup

SHOP = parse_schema(
    {
        "fields": {"id": {"type": "long"}, "left": {"type": "integer"}, "name": {"type": "string", "required": True}},
        "primary_key": ["id"],
    }
)
BACKED_UP = "keeps the state before each edit"
WAIT_S = 30


def queued(**queue: Any) -> Settings:
    seldom = CompactionSettings(opportunistic_check_interval=1_000_000)
    return Settings(writes=WriteQueueSettings(**{"linger_ms": 0, **queue}), iceberg=IcebergSettings(compaction=seldom))


class Shop(CommitSetup):
    """Writes over an engine in memory that keeps the rows of each file."""

    def __init__(self, ledger_file: Path, *, settings: Settings | None = None, **parts: Any) -> None:
        super().__init__(ledger_file, settings=settings or queued(), **parts)
        self.writes = self.parts[Writes]
        self.writes._batches = _with(self.writes._batches, KeyFiles(self.engine.find, self.engine.read))
        if NEW not in self.catalog.tables:
            self.catalog.create(NEW, SHOP, (), {})
        self.made_alone: list[str] = []

    @property
    def table(self) -> Table:
        return self.catalog.load(NEW)

    @property
    def rows(self) -> Rows:
        return sorted(self.engine.rows_of(self.table.spark_name), key=lambda row: row["id"])

    def write(self, *records: dict[str, Any], call: Call | None = None) -> "Future[bytes]":
        def reply(written: WriteOutcome) -> bytes:
            return json.dumps({"written": written.records, "snapshot": written.snapshot_id}).encode()

        return self.writes.append(NEW, list(records), 10, call or Call("w"), reply)

    def upsert(self, *records: dict[str, Any], call: Call | None = None, **how: Any) -> "Future[bytes]":
        def plan(table: Table) -> KeyedChange | None:
            keys = tuple(how.get("keys", ("id",)))
            rows, rule = prepare(table.schema, list(records), keys, updatable(table.schema, how.get("update"), keys))
            edit = Edit(table.schema, ByKey(rows, rule), derived=table.derived)

            def check_new(new: pa.Table) -> None:
                refuse_incomplete(FoundRows({}, 0, new=new), list(records), rule)

            return keyed_change(table, edit, check_new)

        return self._edit("UPSERT", plan, call)

    def update(self, filter_json: Any, call: Call | None = None, **values: Any) -> "Future[bytes]":
        def plan(table: Table) -> KeyedChange | None:
            schema = table.schema
            assignments = tuple(
                Assignment(
                    name, schema.field(name).type, read_assignment(schema.field(name), v, columns_of(schema), name)
                )
                for name, v in values.items()
            )
            return keyed_change(table, Edit(schema, ByFilter(_filter(table, filter_json), assignments)))

        return self._edit("UPDATE", plan, call)

    def delete(self, filter_json: Any, call: Call | None = None) -> "Future[bytes]":
        def plan(table: Table) -> KeyedChange | None:
            return keyed_change(table, Edit(table.schema, ByFilter(_filter(table, filter_json))))

        return self._edit("DELETE", plan, call)

    def _edit(self, operation: str, plan: Callable[[Table], KeyedChange | None], call: Call | None) -> "Future[bytes]":
        call = call or Call(operation.lower())

        def reply(outcome: SharedEditOutcome) -> bytes:
            return json.dumps({**vars(outcome.part.counts), "snapshot": outcome.snapshot_id}).encode()

        def alone() -> bytes:
            self.made_alone.append(operation)
            return json.dumps({"alone": operation}).encode()

        def plan_here(table: Table) -> KeyedChange | None:
            return None if BACKED_UP in table.properties else plan(table)

        return self.writes.edit(PendingEdit(operation, NEW, call, 10, plan_here, reply, alone))

    def together(self, *starts: Callable[[], "Future[bytes]"]) -> list[Any]:
        """The responses to requests that wait for one commit, in order; a failure instead of a response."""
        self.table_is_known()
        held = Held(self)
        first = self.write({"id": 10_000, "name": "first"})
        assert held.inside.wait(WAIT_S)
        waiting = [start() for start in starts]
        held.go_on.set()
        first.result(WAIT_S)
        self.engine.committing = lambda rows: None
        return [_said(one) for one in waiting]

    def table_is_known(self) -> None:
        self.write().result(WAIT_S)

    @property
    def batches(self) -> list[dict[str, str]]:
        """The summaries of the table's commits."""
        return [snapshot.summary for snapshot in self.table.snapshots()]


class Held:
    """Holds up the engine's next commit, until it is let go."""

    def __init__(self, shop: Shop) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        shop.engine.committing = self

    def __call__(self, rows: Rows) -> None:
        self.inside.set()
        assert self.go_on.wait(WAIT_S)


def _with(batches: Any, keys: KeyFiles) -> Any:
    from dataclasses import replace

    return replace(batches, keys=keys)


def _filter(table: Table, filter_json: Any) -> Any:
    return parse_request_filter(filter_json, None, columns_of(table.schema))


def _said(response: "Future[bytes]") -> Any:
    failure = response.exception(WAIT_S)
    return failure if failure is not None else json.loads(response.result(0))


def keyed(text: str, operation: str = "UPSERT") -> IdempotencyKey:
    return IdempotencyKey(operation, NEW, text, f"print of {text}")


def row(number: int, left: int | None = None, name: str = "n") -> dict[str, Any]:
    return {"id": number, "left": left, "name": name}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "ledger.db")
    yield made
    made.writes.close()


def test_requests_of_all_kinds_become_one_commit_and_each_is_told_what_it_did(shop: Shop) -> None:
    shop.write(row(1, 5), row(2, 5), row(3, 5)).result(WAIT_S)
    said = shop.together(
        lambda: shop.upsert({"id": 1, "left": 6}),
        lambda: shop.upsert({"id": 1, "left": 6}),
        lambda: shop.write(row(4)),
        lambda: shop.update({"id": {"in": [1, 4]}, "left": 6}, left=7),
        lambda: shop.delete({"id": 2}),
        lambda: shop.delete({"id": 2}),
        lambda: shop.upsert({"id": 2, "name": "new"}),
    )
    counts = [{k: v for k, v in one.items() if v and k != "snapshot"} for one in said]
    assert counts == [
        {"updated": 1},
        {"unchanged": 1},
        {"written": 1},
        {"updated": 1},
        {"deleted": 1},
        {},
        {"inserted": 1},
    ]
    assert len({one["snapshot"] for one in said}) == 1
    assert shop.rows == [row(1, 7), row(2, None, "new"), row(3, 5), row(4), row(10_000, None, "first")]
    summary = shop.batches[-1]
    assert json.loads(summary[EDIT_PROPERTY])["updated"] == 2
    assert json.loads(summary[KEYS_PROPERTY]) == ["id"]
    assert shop.made_alone == []


def test_the_ledger_knows_the_requests_that_changed_rows_and_what_each_moved(shop: Shop) -> None:
    shop.write(row(1, 5)).result(WAIT_S)
    shop.together(
        lambda: shop.upsert({"id": 1, "left": 6}, call=Call("a")),
        lambda: shop.delete({"id": 77}, call=Call("idle")),
        lambda: shop.delete({"id": 1}, call=Call("b")),
    )
    batch = shop.table.snapshots()[-1].summary["firn-batch"]
    noted = requests_by_batch(shop.ledger, [batch])[batch]
    assert (noted.operation, noted.request_ids) == ("MIXED", ("a", "b"))
    assert [(p.operation, p.counts.updated, p.counts.deleted) for p in noted.parts] == [
        ("UPSERT", 1, 0),
        ("DELETE", 0, 1),
    ]
    rows = UndoRecords(shop.ledger).rows_by_request(batch)
    assert rows is not None
    assert rows.of("removed", [0]).to_pylist() == [row(1, 5)]
    assert rows.of("added", [0]).to_pylist() == rows.of("removed", [1]).to_pylist() == [row(1, 6)]
    assert rows.of("added", [1]).num_rows == 0


def test_a_request_that_is_refused_fails_alone(shop: Shop) -> None:
    refused, fine = shop.together(lambda: shop.upsert({"id": 8}), lambda: shop.upsert(row(9)))
    assert isinstance(refused, InvalidRecord)
    assert refused.field == "records[0].name"
    assert fine["inserted"] == 1
    assert [r["id"] for r in shop.rows] == [9, 10_000]


def test_edits_that_change_nothing_make_no_commit_and_are_answered_with_the_current_snapshot(shop: Shop) -> None:
    shop.write(row(1, 5)).result(WAIT_S)
    before = len(shop.batches)
    said = _said(shop.upsert(row(1, 5)))
    assert (said["unchanged"], said["snapshot"]) == (1, shop.table.current_snapshot_id)
    assert len(shop.batches) == before


def test_the_ledger_knows_requests_that_changed_nothing_as_changes_without_effect(shop: Shop) -> None:
    shop.write(row(1, 5)).result(WAIT_S)
    shop.together(
        lambda: shop.upsert(row(2), call=Call("a")),
        lambda: shop.delete({"id": 77}, call=Call("idle")),
    )
    [idle] = UndoRecords(shop.ledger).by_request(shop.table.uuid, "idle")
    assert (idle.operation, idle.state, idle.snapshot_id) == ("DELETE", "void", None)


def test_a_single_edit_shares_a_commit_with_nobody_and_keeps_no_rows_in_the_ledger(shop: Shop) -> None:
    shop.write(row(1, 5)).result(WAIT_S)
    shop.upsert({"id": 1, "left": 6}).result(WAIT_S)
    batch = shop.table.snapshots()[-1].summary["firn-batch"]
    assert requests_by_batch(shop.ledger, [batch])[batch].operation == "UPSERT"
    assert UndoRecords(shop.ledger).rows_by_request(batch) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda shop: shop.update({"id": 1}, left={"expression": "left + 1"}),
        lambda shop: shop.update({"left": 5}, left=6),
        lambda shop: shop.delete({"left": {"gt": 5}}),
        lambda shop: shop.delete({"id": 1, "name": {"like": "n%"}}),
    ],
    ids=["expression", "no key", "range", "text test"],
)
def test_what_spark_must_compute_or_find_gets_a_commit_of_its_own(
    shop: Shop, change: Callable[[Shop], "Future[bytes]"]
) -> None:
    said = _said(change(shop))
    assert said == {"alone": shop.made_alone[0]}


def test_an_edit_that_touches_large_files_is_made_alone_and_the_others_are_committed(shop: Shop) -> None:
    shop.write(row(1)).result(WAIT_S)
    find = shop.engine.find

    def large(table: Table, lookups: Any) -> Any:
        hits = find(table, lookups)
        for path, file in hits.files.items():
            hits.files[path] = DataFile(path, 1 << 30, file.rows, file.group)  # type: ignore[index]
        return hits

    shop.writes._batches = _with(shop.writes._batches, KeyFiles(large, shop.engine.read))
    said = shop.together(
        lambda: shop.upsert({"id": 1, "left": 2}), lambda: shop.upsert(row(2)), lambda: shop.write(row(3))
    )
    assert said[0] == {"alone": "UPSERT"}
    assert (said[1]["inserted"], said[2]["written"]) == (1, 1)
    assert [r["id"] for r in shop.rows] == [1, 2, 3, 10_000]


def test_if_files_cannot_be_read_here_edits_are_made_alone_and_writes_as_ever(shop: Shop) -> None:
    def unreadable(table: Table, lookups: Any) -> Any:
        raise UnreadableFile("the table has delete files")

    shop.writes._batches = _with(shop.writes._batches, KeyFiles(unreadable, shop.engine.read))
    said = shop.together(lambda: shop.upsert(row(1)), lambda: shop.write(row(2)))
    assert said[0] == {"alone": "UPSERT"}
    assert said[1]["written"] == 1
    assert [r["id"] for r in shop.rows] == [2, 10_000]


def test_with_the_setting_off_every_edit_is_made_alone(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "ledger.db", settings=queued(shared_edits=False))
    assert _said(shop.upsert(row(1))) == {"alone": "UPSERT"}
    shop.table_is_known()
    assert _said(shop.upsert(row(1))) == {"alone": "UPSERT"}


class TestKeys:
    """An edit with a key has one effect and one response, whatever happens."""

    def test_the_response_is_stored_with_the_outcome(self, shop: Shop) -> None:
        shop.upsert(row(1), call=Call("a", keyed("k"))).result(WAIT_S)
        known = shop.ledger.key(keyed("k").id)
        assert known is not None
        assert json.loads(known.answer or b"")["inserted"] == 1

    def test_a_lost_response_is_made_again_from_the_ledger(self, shop: Shop) -> None:
        shop.write(row(1, 5)).result(WAIT_S)
        shop.ledger.mute = frozenset({"end"})
        a, b = shop.together(
            lambda: shop.upsert({"id": 1, "left": 6}, row(2), call=Call("a", keyed("a"))),
            lambda: shop.upsert({"id": 1, "left": 6}, row(3), row(4), call=Call("b", keyed("b"))),
        )
        again = Shop(shop.ledger_file, catalog=shop.catalog, engine=shop.engine)
        assert _said(again.upsert({"id": 1, "left": 6}, row(2), call=again.retry(keyed("a")))) == a
        assert _said(again.upsert({"id": 1, "left": 6}, row(3), row(4), call=again.retry(keyed("b")))) == b
        assert (a["updated"], a["inserted"], b["unchanged"], b["inserted"]) == (1, 1, 1, 2)
        assert [r["id"] for r in again.rows] == [1, 2, 3, 4, 10_000]

    def test_what_was_not_committed_is_tried_again(self, shop: Shop) -> None:
        def fail(rows: Rows) -> None:
            raise EngineUnavailable("Spark ended")

        shop.engine.committing = fail
        assert isinstance(_said(shop.upsert(row(1), call=Call("a", keyed("k")))), EngineUnavailable)
        shop.engine.committing = lambda rows: None
        assert _said(shop.upsert(row(1), call=shop.retry(keyed("k"))))["inserted"] == 1

    def test_a_failure_after_the_commit_is_still_a_success(self, shop: Shop) -> None:
        def fail(rows: Rows) -> None:
            raise EngineUnavailable("the connection broke")

        shop.engine.committed = fail
        said = _said(shop.upsert(row(1)))
        assert (said["inserted"], said["snapshot"]) == (1, shop.table.current_snapshot_id)

    def test_a_key_in_use_elsewhere_fails_only_its_request_also_if_that_changed_nothing(self, shop: Shop) -> None:
        shop.write(row(1, 5)).result(WAIT_S)
        store = shop.commits.store_response

        def busy(call: Call, body: bytes) -> bytes:
            if call.id == "idle":
                raise KeyBusy(keys=frozenset({"k"}))
            return store(call, body)

        shop.commits.store_response = busy  # type: ignore[method-assign]
        failed, fine = shop.together(
            lambda: shop.upsert(row(1, 5), call=Call("idle", keyed("k"))), lambda: shop.upsert(row(2))
        )
        assert isinstance(failed, KeyBusy)
        assert fine["inserted"] == 1

    def test_a_key_in_use_elsewhere_keeps_only_its_request_from_the_commit(self, shop: Shop) -> None:
        shop.ledger.answer(keyed("k").id, "print", b"{}")
        busy, fine = shop.together(
            lambda: shop.upsert(row(1), call=Call("a", keyed("k"))), lambda: shop.upsert(row(2), call=Call("b"))
        )
        assert isinstance(busy, KeyBusy)
        assert fine["inserted"] == 1
        assert [r["id"] for r in shop.rows] == [2, 10_000]


def test_a_batch_that_cannot_be_written_is_split_until_the_request_at_fault_is_found(shop: Shop) -> None:
    def guilty(rows: Rows) -> None:
        if any(r["id"] == 13 for r in rows):
            raise InvalidRecord("13 is guilty", field="records")

    shop.engine.writing = guilty
    said = shop.together(*(lambda n=n: shop.upsert(row(n)) for n in (11, 12, 13, 14)))  # type: ignore[misc]
    assert [isinstance(one, FirnError) for one in said] == [False, False, True, False]
    assert [r["id"] for r in shop.rows] == [11, 12, 14, 10_000]


def test_if_another_writer_changed_the_files_the_batch_is_planned_again_on_what_is_there_now(shop: Shop) -> None:
    shop.write(row(1, 5)).result(WAIT_S)
    [path] = shop.engine.files
    times: list[int] = []

    def compact(rows: Rows) -> None:
        """Another writer moves the row to another file."""
        if not times:
            times.append(1)
            shop.engine.files[f"{path}-merged"] = shop.engine.files.pop(path)

    shop.engine.writing = compact
    assert _said(shop.upsert({"id": 1, "left": 6}))["updated"] == 1
    assert shop.rows == [row(1, 6)]


def test_a_table_that_changes_all_the_time_ends_in_a_conflict(shop: Shop) -> None:
    shop.write(row(1, 5)).result(WAIT_S)

    def move(rows: Rows) -> None:
        for path in list(shop.engine.files):
            shop.engine.files[f"{path}-moved"] = shop.engine.files.pop(path)

    shop.engine.writing = move
    assert isinstance(_said(shop.upsert({"id": 1, "left": 6})), CommitConflict)


def test_a_column_that_was_added_in_the_meantime_is_kept(shop: Shop) -> None:
    shop.table_is_known()
    wider = parse_schema({"fields": {"id": {"type": "long"}, "note": {"type": "string"}}, "primary_key": ["id"]})
    shop.catalog.evolve(NEW, wider)
    assert _said(shop.upsert({"id": 1, "note": "x"}))["inserted"] == 1
    assert shop.rows == [{"id": 1, "note": "x"}]


def test_a_backup_that_the_table_wants_by_now_is_of_the_state_before_one_edit(shop: Shop) -> None:
    """As it was seen last, the table had no such setting; every edit is checked against the table as it is now."""
    shop.table_is_known()
    shop.catalog.set_properties(shop.table, {BACKED_UP: "true"})
    assert _said(shop.upsert(row(1))) == {"alone": "UPSERT"}


def test_requests_that_saw_different_columns_are_checked_again_together(shop: Shop) -> None:
    """Among those that wait for one commit, the later ones may have seen a newer table."""
    shop.table_is_known()
    held = Held(shop)
    first = shop.write(row(10))
    assert held.inside.wait(WAIT_S)
    old = shop.upsert({"id": 1, "name": "x"})
    wider = parse_schema(
        {
            "fields": {"id": {"type": "long"}, "name": {"type": "string"}, "note": {"type": "string"}},
            "primary_key": ["id"],
        }
    )
    shop.catalog.evolve(NEW, wider)
    shop.writes._forget(NEW)
    new = shop.upsert({"id": 2, "note": "y"})
    wait_until(lambda: shop.writes.waiting == 2, WAIT_S, every=0.01)
    held.go_on.set()
    assert [_said(one)["inserted"] for one in (old, new)] == [1, 1]
    assert isinstance(first.exception(WAIT_S), FirnError) or first.done()


class TestCancelled:
    """A request that waits may be cancelled before its batch begins, and never afterwards."""

    def test_before_its_batch_it_ends_and_the_others_go_on(self, shop: Shop) -> None:
        shop.table_is_known()
        held, call = Held(shop), Call("a")
        first = shop.write(row(1))
        assert held.inside.wait(WAIT_S)
        waits, other = shop.upsert(row(2), call=call), shop.upsert(row(3))
        assert call.cancel()
        assert isinstance(_said(waits), Cancelled)
        held.go_on.set()
        first.result(WAIT_S)
        assert _said(other)["inserted"] == 1
        assert [r["id"] for r in shop.rows] == [1, 3]

    def test_from_then_on_it_is_too_late(self, shop: Shop) -> None:
        shop.table_is_known()
        held, call = Held(shop), Call("a")
        waits = shop.upsert(row(2), call=call)
        assert held.inside.wait(WAIT_S)
        assert not call.cancel()
        held.go_on.set()
        assert _said(waits)["inserted"] == 1

    def test_a_call_that_was_cancelled_before_it_came_does_nothing(self, shop: Shop) -> None:
        call = Call("a")
        call.cancel()
        assert isinstance(_said(shop.upsert(row(2), call=call)), Cancelled)
        assert shop.rows == []


def test_upserts_with_other_keys_wait_for_the_next_commit_and_so_do_large_writes(shop: Shop) -> None:
    before = len(shop.batches)
    shop.together(
        lambda: shop.upsert(row(1)),
        lambda: shop.upsert(row(2), keys=("name",)),
        lambda: shop.write(*(row(n) for n in range(100, 1200))),
    )
    # The one that held them up, the two UPSERTs, and the WRITE.
    assert len(shop.batches) == before + 4


def test_what_waits_when_it_is_closed_is_refused(shop: Shop) -> None:
    shop.writes.close()
    assert isinstance(_said(shop.upsert(row(1))), FirnError)
    wait_until(lambda: shop.writes.waiting == 0, WAIT_S, every=0.01)


@pytest.mark.parametrize(
    ("touched", "shares"),
    [
        ([["small"], ["large"], ["small"]], [True, False, True]),
        ([["small", "large"]], [False]),
        ([[], ["a"], ["b"], ["c"], ["a"]], [True, True, True, False, True]),
        ([["many"]], [False]),
    ],
)
def test_only_few_and_small_files_are_rewritten_with_a_batch(touched: list[list[str]], shares: list[bool]) -> None:
    mib = 1 << 20
    sizes = {"small": (1000, 10), "large": (5 * mib, 10), "many": (1000, 10**6)} | dict.fromkeys(
        "abc", (3 * mib, 100000)
    )
    files = {name: DataFile(name, size, rows, ()) for name, (size, rows) in sizes.items()}
    assert share_rewrite(touched, files) == shares


def _files(*sizes: int, group: tuple[Any, ...] = (0,), **more: Any) -> list[DataFile]:
    """Files of these numbers of rows, the oldest first."""
    return [
        DataFile(f"{group}-{n:02}", rows * 10, rows, group, sequence_number=n, **more) for n, rows in enumerate(sizes)
    ]


def _merged(files: list[DataFile], mode: RowLevel = "auto", touched: int = 0) -> list[int]:
    """Which of some files a batch merges that touches one of them."""
    path = files[touched].path
    hits = KeyHits({("id",): {(1,): {path: [0]}}}, {path: files[touched]}, 1, True, all_files=files)
    merged = choose_files(mode, [[path]], hits).merged
    assert all(merged[file.path] is file for file in files if file.path in merged)
    return [n for n, file in enumerate(files) if file.path in merged]


BASE = 10**6


class TestTheNewestSmallFilesOfAPartitionAreMergedByABatchThatTouchesIt:
    def test_once_they_are_many(self) -> None:
        assert _merged(_files(BASE, *[64] * 7)) == []
        assert _merged(_files(BASE, *[64] * 8)) == [*range(1, 9)]
        assert _merged(_files(BASE, *[64] * 100)) == [*range(69, 101)]

    def test_but_older_rows_stay_in_older_files(self) -> None:
        assert _merged(_files(64, 64, BASE, *[64] * 8)) == [*range(3, 11)]
        assert _merged(_files(*[64] * 20, BASE, 64)) == []

    def test_if_they_are_small_together(self) -> None:
        assert _merged(_files(*[2000] * 12)) == []
        assert _merged(_files(9000, *[100] * 8)) == [*range(9)]

    def test_unless_some_of_their_rows_were_deleted_by_place(self) -> None:
        files = _files(BASE, *[64] * 9)
        files[2] = replace(files[2], deleted=1, deletes=("d",))
        assert _merged(files) == []
        # Of a file that it touches, the batch knows which.
        assert _merged(files, touched=2) == [*range(1, 10)]

    def test_not_those_of_other_partitions(self) -> None:
        files = [*_files(*[64] * 9), *_files(*[64] * 9, group=(1,))]
        assert _merged(files) == [*range(9)]

    @pytest.mark.parametrize("mode", ["copy_on_write", "merge_on_read"])
    def test_only_if_the_service_chooses_how_rows_are_deleted(self, mode: RowLevel) -> None:
        assert _merged(_files(BASE, *[64] * 20), mode) == []


def test_a_table_that_is_changed_row_by_row_keeps_few_files(shop: Shop) -> None:
    shop.engine.deletes_by_place = True
    _said(shop.write(*(row(n, name="long" * 300) for n in range(1000))))
    for n in range(40):
        assert _said(shop.update({"id": n * 7}, left=n, name="n"))["updated"] == 1
    assert len(shop.engine.files) <= 1 + 8
    assert [r["id"] for r in shop.rows] == [*range(1000)]
    assert [r["left"] for r in shop.rows] == [i // 7 if i % 7 == 0 and i < 280 else None for i in range(1000)]


def test_while_another_change_is_being_made_files_are_left_for_it(shop: Shop) -> None:
    shop.engine.deletes_by_place = True
    _said(shop.write(*(row(n, name="long" * 300) for n in range(1000))))
    with shop.parts[SnapshotHolds].building_on(shop.table.uuid, shop.table.current_snapshot_id):
        for n in range(20):
            _said(shop.update({"id": n}, left=n))
        assert len(shop.engine.files) == 1 + 20
    _said(shop.update({"id": 20}, left=20))
    assert len(shop.engine.files) == 2
