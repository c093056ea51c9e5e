"""A batch of WRITEs: one commit for all where that goes, and for the innocent where it does not."""

import json
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from service.commits.commit import TRIES
from service.errors import (
    CatalogUnavailable,
    CommitConflict,
    EngineUnavailable,
    FirnError,
    InvalidQuery,
    KeyBusy,
    LedgerUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    StorageUnavailable,
    TableNotFound,
    TooManyRequests,
)
from service.model.call import Call, IdempotencyKey
from service.model.schema.definition import parse_schema
from service.writes.batch import CommittedBatch, WriteBatches
from service.writes.entry import PendingWrite, WriteOutcome, together
from tests.fakes import FakeCatalog, FakeOwners, FakeSmallFileChecks, Rows
from tests.harness import wait_until
from tests.unit.commit_setup import ORDERS, SCHEMA, CommitSetup

WIDER = parse_schema({"fields": {"id": {"type": "long"}, "note": {"type": "string"}}})


def reply(written: WriteOutcome) -> bytes:
    check = written.check
    message = [written.records, written.snapshot_id, written.requests_in_batch, written.records_in_batch]
    return json.dumps([*message, check.compaction_recommended, check.small_files_count]).encode()


class Notes(ThreadPoolExecutor):
    """Remembers what it was given, so that a test can wait for what nobody else waits for."""

    def __init__(self) -> None:
        super().__init__(4)
        self.given: list[Future[Any]] = []

    def submit(self, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.given.append(super().submit(*args, **kwargs))
        return self.given[-1]


class Bench(CommitSetup):
    """Batches over a setup, an engine in memory, and what became of every entry."""

    def __init__(
        self, ledger_file: Path, check_every: int = 1_000_000, *, catalog: FakeCatalog | None = None, **parts: Any
    ) -> None:
        super().__init__(ledger_file, catalog=catalog, **parts)
        self.batches = WriteBatches(
            self.engine.as_engine, self.commits, FakeSmallFileChecks(check_every).as_small_file_checks
        )
        self.commits.batches._recording = self.noting = Notes()

    def entry(self, *ids: int, key: str | None = None) -> PendingWrite:
        call = Call(f"r{ids}", IdempotencyKey("WRITE", ORDERS, key, f"print of {ids}") if key else None)
        made = PendingWrite(ORDERS, call, [{"id": i} for i in ids], 10, reply)
        made.fit(self.catalog.load(ORDERS))
        return made

    def entries(self, count: int) -> list[PendingWrite]:
        return [self.entry(i) for i in range(count)]

    def commit(self, entries: list[PendingWrite]) -> list[CommittedBatch]:
        results = self.batches.commit(entries)
        self.sent_back = results.uncommitted
        for done in results.committed:
            self.batches.respond(done)
        wait(self.noting.given, 10)
        return results.committed

    @property
    def ids(self) -> list[int]:
        """Of every row that is in a commit, in order."""
        return [row["id"] for row in self.engine.rows]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "ledger.db")


def reported(entry: PendingWrite) -> list[Any]:
    message: list[Any] = json.loads(entry.response.result(0))
    return message


def failure(entry: PendingWrite) -> BaseException | None:
    return entry.response.exception(0)


def guilty(*ids: int, kind: Callable[[str], Exception] = InvalidQuery) -> Callable[[Rows], None]:
    """Spark cannot write a batch that holds one of these."""

    def writing(rows: Rows) -> None:
        for row in rows:
            if row["id"] in ids:
                raise kind(f"{row['id']} is guilty")

    return writing


def raising(*failures: Exception | None) -> Callable[[Rows], None]:
    """Fail the first times it is called; None lets a call pass."""
    left = list(failures)

    def hook(rows: Rows) -> None:
        now = left.pop(0) if left else None
        if now is not None:
            raise now

    return hook


def test_a_batch_is_one_note_one_job_and_one_commit(bench: Bench) -> None:
    entries = [bench.entry(1, 2), bench.entry(3), bench.entry(4, 5, 6)]
    [made] = bench.commit(entries)
    assert (len(bench.engine.tries), bench.ids, bench.history()) == (1, [1, 2, 3, 4, 5, 6], 1)
    assert bench.notes() == [("done", made.snapshot_id)]
    noted = bench.ledger.find(made.batch)
    assert noted
    assert (noted.requests, noted.records, noted.operation, noted.table) == (3, 6, "WRITE", ORDERS)


def test_each_is_told_what_it_wrote_and_what_the_commit_holds(bench: Bench) -> None:
    entries = [bench.entry(1, 2), bench.entry(3)]
    [made] = bench.commit(entries)
    assert reported(entries[0]) == [2, made.snapshot_id, 2, 3, False, None]
    assert reported(entries[1]) == [1, made.snapshot_id, 2, 3, False, None]


def test_the_writes_of_a_batch_are_counted_and_the_one_that_is_due_is_told_of_small_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "ledger.db", check_every=3)
    first, second = bench.entries(2), bench.entries(5)
    bench.commit(first)
    bench.commit(second)
    assert [reported(e)[4:] for e in first] == [[False, None]] * 2
    assert [reported(e)[4:] for e in second] == [[True, 2], [False, None], [False, None], [True, 2], [False, None]]
    assert bench.ledger.writes(bench.catalog.tables[ORDERS].uuid) == 7


def test_who_listens_is_told_of_each_commit_when_its_writes_are_answered(bench: Bench) -> None:
    told_of: list[int] = []
    entries = bench.entries(4)
    bench.commits.when_committed(lambda name, uuid: told_of.append(sum(e.response.done() for e in entries)))
    bench.engine.writing = guilty(3)
    bench.commit(entries)
    assert told_of == [3, 4]


class TestTheNote:
    """Nothing is committed before it is noted, nobody is answered before the answer is stored."""

    def test_the_note_is_there_when_the_commit_is_made(self, bench: Bench) -> None:
        states = []
        bench.engine.committing = lambda rows: states.append([left.state for left in bench.ledger.unfinished()])
        bench.commit(bench.entries(2))
        assert states == [["begun"]]

    def test_the_files_are_written_meanwhile_and_the_commit_waits_for_the_note(self, bench: Bench) -> None:
        writing, go_on = threading.Event(), threading.Event()
        begin = bench.commits.batches.begin

        def slowly(*args: Any, **more: Any) -> None:
            assert writing.wait(30), "the job must not wait for the note to begin"
            go_on.wait(0.05)
            begin(*args, **more)
            noted.set()

        noted = threading.Event()
        bench.commits.batches.begin = slowly  # type: ignore[method-assign, assignment]  # as a slow disk would
        bench.engine.writing = lambda rows: writing.set()
        bench.engine.committing = lambda rows: seen.append(noted.is_set())
        seen: list[bool] = []
        bench.commit(bench.entries(2))
        assert (seen, bench.ids) == ([True], [0, 1])

    def test_what_cannot_be_noted_is_not_committed(self, bench: Bench) -> None:
        bench.ledger.mute = frozenset({"begin"})
        entries = bench.entries(4)
        assert bench.commit(entries) == []
        assert all(isinstance(failure(e), LedgerUnavailable) for e in entries)
        assert (bench.notes(), bench.history(), len(bench.engine.tries)) == ([], 0, 1)

    def test_of_what_could_not_be_noted_the_outcome_is_never_unknown(self, bench: Bench) -> None:
        """It was certainly not committed, whether or not the history can be read."""
        bench.ledger.mute = frozenset({"begin"})
        entries = bench.entries(2)
        bench.catalog.failures = [CatalogUnavailable("silent") for _ in range(3)]
        bench.commit(entries)
        assert all(isinstance(failure(e), LedgerUnavailable) for e in entries)

    def test_answers_are_stored_under_their_keys_before_anybody_has_them(self, bench: Bench) -> None:
        entries = [bench.entry(1, key="k1"), bench.entry(2), bench.entry(3, key="k3")]
        stored: list[tuple[bytes | None, bytes]] = []
        for entry in entries:
            key = entry.call.key

            def look(done: Any, key: IdempotencyKey | None = key) -> None:
                known = bench.ledger.key(key.id) if key else None
                stored.append((known.answer if known else None, done.result()))

            entry.response.add_done_callback(look)
        bench.commit(entries)
        assert [kept for kept, _ in stored] == [stored[0][1], None, stored[2][1]]
        assert bench.notes()[0][0] == "done"

    def test_an_end_that_cannot_be_noted_makes_no_failure_and_is_found_by_the_retry(self, bench: Bench) -> None:
        bench.ledger.mute = frozenset({"end"})
        entry = bench.entry(1, 2, key="k1")
        [made] = bench.commit([entry, bench.entry(3)])
        assert reported(entry)[:2] == [2, made.snapshot_id]
        assert bench.notes() == [("begun", None)]
        bench.ledger.mute = frozenset()
        assert entry.call.key
        happened = bench.commits.earlier_batch(bench.retry(entry.call.key))
        assert happened
        assert (happened.snapshot_id, happened.requests, happened.records) == (made.snapshot_id, 2, 3)

    def test_a_key_is_noted_with_the_batch_that_it_was_last_tried_in(self, bench: Bench) -> None:
        entries = [bench.entry(i, key=f"k{i}") for i in range(4)]
        bench.engine.writing = guilty(2)
        made = {entry.call.id: done.batch for done in bench.commit(entries) for entry in done.entries}
        for entry in entries:
            assert entry.call.key
            known = bench.ledger.key(entry.call.key.id)
            assert known
            if entry is entries[2]:
                assert known.answer is None
                assert bench.commits.earlier_batch(bench.retry(entry.call.key)) is None
            else:
                assert (known.batch, known.answer) == (made[entry.call.id], entry.response.result(0))


class TestGuilt:
    """A batch that fails is split until the guilty are found; the innocent are answered success."""

    @pytest.mark.parametrize("position", range(7))
    def test_one_guilty_entry_is_refused_alone(self, bench: Bench, position: int) -> None:
        bench.engine.writing = guilty(position)
        entries = bench.entries(7)
        bench.commit(entries)
        assert bench.ids == [i for i in range(7) if i != position]
        for i, entry in enumerate(entries):
            if i == position:
                assert isinstance(failure(entry), InvalidQuery)
            else:
                assert reported(entry)[0] == 1

    def test_what_an_innocent_is_told_is_true_of_the_commit_it_came_to_be_in(self, bench: Bench) -> None:
        bench.engine.writing = guilty(5)
        entries = bench.entries(8)
        made = bench.commit(entries)
        assert [len(done.entries) for done in made] == [4, 1, 2]
        for done in made:
            for entry in done.entries:
                assert reported(entry)[1:4] == [done.snapshot_id, len(done.entries), len(done.entries)]
        snapshots = [snapshot.snapshot_id for snapshot in bench.catalog.tables[ORDERS].history]
        assert snapshots == [done.snapshot_id for done in made]

    def test_a_defect_in_one_entry_costs_the_others_nothing(self, bench: Bench) -> None:
        bench.engine.writing = guilty(1, kind=RuntimeError)
        entries = bench.entries(4)
        bench.commit(entries)
        assert isinstance(failure(entries[1]), RuntimeError)
        assert bench.ids == [0, 2, 3]

    def test_all_may_be_guilty(self, bench: Bench) -> None:
        bench.engine.writing = guilty(*range(6))
        entries = bench.entries(6)
        assert bench.commit(entries) == []
        assert [str(failure(e)) for e in entries] == [f"{i} is guilty" for i in range(6)]
        assert {state for state, _ in bench.notes()} == {"void"}

    @given(
        count=st.integers(1, 10),
        bad=st.sets(st.integers(0, 9)),
        kind=st.sampled_from([InvalidQuery, RuntimeError]),
    )
    @given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_whoever_is_guilty_the_innocent_are_written_once_and_in_order(
        self, tmp_path: Path, count: int, bad: set[int], kind: Callable[[str], Exception]
    ) -> None:
        bench = Bench(tmp_path / "ledger.db")
        bench.engine.writing = guilty(*bad, kind=kind)
        entries = bench.entries(count)
        made = bench.commit(entries)
        assert bench.ids == [i for i in range(count) if i not in bad]
        assert [failure(e) is not None for e in entries] == [i in bad for i in range(count)]
        assert [entry for done in made for entry in done.entries] == [e for e in entries if failure(e) is None]
        found = len([i for i in bad if i < count])
        assert len(bench.engine.tries) <= 1 + 2 * found * math.ceil(math.log2(count) if count > 1 else 0)
        bench.commits.batches.close()


class TestSharedFailure:
    """What no entry is guilty of is not tried for each of them."""

    def test_a_full_disk_ends_after_a_bounded_number_of_tries(self, bench: Bench) -> None:
        bench.engine.writing = raising(*[StorageUnavailable("full")] * 1000)
        entries = bench.entries(200)
        assert bench.commit(entries) == []
        assert all(isinstance(failure(e), StorageUnavailable) for e in entries)
        assert len(bench.engine.tries) < 40
        assert {state for state, _ in bench.notes()} == {"void"}

    def test_a_disk_that_has_room_again_takes_the_rest(self, bench: Bench) -> None:
        bench.engine.writing = raising(*[StorageUnavailable("full")] * 6)
        entries = bench.entries(32)
        bench.commit(entries)
        refused = [i for i, e in enumerate(entries) if failure(e)]
        assert refused == [0]
        assert bench.ids == list(range(1, 32))

    @pytest.mark.parametrize("bad", [(3,), (3, 9), (1, 3, 5, 8, 12)])
    def test_those_that_the_storage_cannot_take_are_refused_alone(self, bench: Bench, bad: tuple[int, ...]) -> None:
        bench.engine.writing = guilty(*bad, kind=StorageUnavailable)
        entries = bench.entries(16)
        bench.commit(entries)
        assert [i for i, e in enumerate(entries) if failure(e)] == list(bad)
        assert bench.ids == [i for i in range(16) if i not in bad]

    @pytest.mark.parametrize(
        "failure_",
        [
            EngineUnavailable("gone"),
            CatalogUnavailable("silent"),
            LedgerUnavailable("silent"),
            TooManyRequests("busy"),
            TableNotFound("dropped"),
        ],
        ids=lambda e: type(e).__name__,
    )
    def test_a_failure_of_no_entrys_making_is_told_to_all_at_once(self, bench: Bench, failure_: FirnError) -> None:
        bench.engine.writing = raising(failure_)
        entries = bench.entries(8)
        assert bench.commit(entries) == []
        assert [failure(e) for e in entries] == [failure_] * 8
        assert (len(bench.engine.tries), bench.notes()) == (1, [("void", None)])


class TestConflict:
    """A batch that another writer beat is tried again, some times."""

    def test_it_is_tried_again_whole_with_a_stamp_of_its_own(self, bench: Bench) -> None:
        bench.engine.committing = raising(CommitConflict("beaten"), CommitConflict("beaten"))
        entries = bench.entries(3)
        [made] = bench.commit(entries)
        assert [len(rows) for rows in bench.engine.tries] == [3, 3, 3]
        assert (bench.ids, [reported(e)[1] for e in entries]) == ([0, 1, 2], [made.snapshot_id] * 3)
        assert sorted(bench.notes(), key=str) == [("done", made.snapshot_id), ("void", None), ("void", None)]

    def test_always_beaten_all_are_told_so(self, bench: Bench) -> None:
        bench.engine.committing = raising(*[CommitConflict("beaten")] * 100)
        entries = bench.entries(3)
        assert bench.commit(entries) == []
        assert all(isinstance(failure(e), CommitConflict) for e in entries)
        assert (len(bench.engine.tries), bench.notes()) == (TRIES, [("void", None)] * TRIES)

    def test_said_to_be_beaten_after_the_commit_it_is_not_made_twice(self, bench: Bench) -> None:
        bench.engine.committed = raising(CommitConflict("beaten?"))
        bench.commit(bench.entries(3))
        assert (bench.ids, len(bench.engine.tries)) == ([0, 1, 2], 1)


class TestAfterTheCommit:
    """Only the table's history says whether a batch was committed."""

    @pytest.mark.parametrize(
        "failure_",
        [EngineUnavailable("gone"), StorageUnavailable("full"), OutcomeUnknown("who knows"), RuntimeError("a defect")],
        ids=lambda e: type(e).__name__,
    )
    def test_a_failure_after_the_commit_is_a_success(self, bench: Bench, failure_: Exception) -> None:
        bench.engine.committed = raising(failure_)
        entries = bench.entries(4)
        [made] = bench.commit(entries)
        assert [reported(e)[1] for e in entries] == [made.snapshot_id] * 4
        assert (bench.ids, bench.notes()) == ([0, 1, 2, 3], [("done", made.snapshot_id)])

    def test_an_unknown_outcome_is_told_to_all_and_stays_unknown(self, bench: Bench) -> None:
        """It may still be committed by whoever was asked to; trying again would make it twice."""
        bench.engine.committing = raising(OutcomeUnknown("who knows"))
        entries = bench.entries(4)
        assert bench.commit(entries) == []
        assert all(isinstance(failure(e), OutcomeUnknown) for e in entries)
        assert (len(bench.engine.tries), bench.notes()) == (1, [("begun", None)])

    @pytest.mark.parametrize("came", [True, False])
    def test_a_history_that_cannot_be_read_makes_the_outcome_unknown_until_it_can(
        self, bench: Bench, came: bool
    ) -> None:
        def fall_silent(rows: Rows) -> None:
            bench.catalog.failures = [CatalogUnavailable("silent") for _ in range(3)]
            raise EngineUnavailable("gone")

        setattr(bench.engine, "committed" if came else "committing", fall_silent)
        entries = bench.entries(4)
        assert bench.commit(entries) == []
        [left] = bench.ledger.unfinished()
        for entry in entries:
            unknown = failure(entry)
            assert isinstance(unknown, OutcomeUnknown)
            assert unknown.details == {"batch": left.batch}
        assert len(bench.engine.tries) == 1
        assert bench.commits.batches.recover() == 0, "it may still be committed by whoever was asked to"
        assert bench.restarted().commits.batches.recover() == 1
        assert bench.notes() == [("done", bench.catalog.tables[ORDERS].current_snapshot_id) if came else ("void", None)]

    def test_a_table_that_was_dropped_meanwhile_is_not_found(self, bench: Bench) -> None:
        bench.engine.writing = lambda rows: bench.catalog.drop(bench.catalog.load(ORDERS), purge=False)
        bench.engine.committing = raising(TableNotFound("gone"))
        entries = bench.entries(2)
        assert bench.commit(entries) == []
        assert all(isinstance(failure(e), TableNotFound) for e in entries)
        assert bench.notes() == [("void", None)]


class TestMoved:
    """Entries were checked against a table that has changed: they go back, unless they were answered."""

    def test_a_changed_schema_sends_all_back_and_nothing_is_written(self, bench: Bench) -> None:
        entries = bench.entries(3)
        bench.catalog.evolve(ORDERS, WIDER)
        assert bench.commit(entries) == []
        assert bench.sent_back == entries
        assert not any(e.response.done() for e in entries)
        assert (bench.ids, bench.notes()) == ([], [("void", None)])

    def test_a_replaced_table_returns_all_waiting_writes(self, bench: Bench) -> None:
        entries = bench.entries(3)
        bench.catalog.drop(bench.catalog.load(ORDERS), purge=False)
        bench.catalog.create(ORDERS, SCHEMA, (), {})
        assert bench.commit(entries) == []
        assert (bench.sent_back, bench.history()) == (entries, 0)

    def test_what_was_committed_before_the_change_is_not_sent_back(self, bench: Bench) -> None:
        """4 fail together, the first half is committed, then the table changes."""
        bench.engine.writing = raising(StorageUnavailable("full"))
        bench.engine.committed = lambda rows: bench.catalog.evolve(ORDERS, WIDER)
        entries = bench.entries(4)
        assert [done.entries for done in bench.commit(entries)] == [entries[:2]]
        assert bench.sent_back == entries[2:]
        assert bench.ids == [0, 1]

    def test_what_was_refused_before_the_change_is_not_sent_back(self, bench: Bench) -> None:
        """It has its answer; written with the others it would be in the table all the same."""

        def writing(rows: Rows) -> None:
            if rows == [{"id": 0}]:
                bench.catalog.evolve(ORDERS, WIDER)
            raise InvalidQuery("guilty")

        bench.engine.writing = writing
        entries = bench.entries(4)
        assert bench.commit(entries) == []
        assert isinstance(failure(entries[0]), InvalidQuery)
        assert bench.sent_back == entries[1:]

    def test_entries_checked_against_different_schemas_do_not_mix(self, bench: Bench) -> None:
        """Those of the present schema are committed, the others sent back."""
        old = bench.entries(2)
        bench.catalog.evolve(ORDERS, WIDER)
        new = [bench.entry(7), bench.entry(8)]
        bench.commit([*new, *old])
        assert (bench.ids, bench.sent_back) == ([7, 8], old)


class TestKeysElsewhere:
    """Some keys of a batch are another instance's: those entries are refused, the others are committed."""

    @pytest.fixture
    def both(self, bench: Bench) -> tuple[Bench, Bench]:
        owners = FakeOwners("here")
        here, there = bench.instance(owners), bench.instance(owners.beside("there"))
        return here, there

    def begin(self, there: Bench, *keys: str, batch: str = "theirs") -> None:
        calls = [Call("r", IdempotencyKey("WRITE", ORDERS, key, "print")) for key in keys]
        there.commits.batches.begin(batch, there.catalog.load(ORDERS), "WRITE", calls)

    @pytest.mark.parametrize("taken", [(0,), (3,), (1, 2), (0, 2, 4)])
    def test_only_those_are_refused(self, both: tuple[Bench, Bench], taken: tuple[int, ...]) -> None:
        here, there = both
        self.begin(there, *(f"k{i}" for i in taken))
        entries = [here.entry(i, key=f"k{i}") for i in range(5)] + [here.entry(5)]
        [made] = here.commit(entries)
        assert [i for i, entry in enumerate(entries) if isinstance(failure(entry), KeyBusy)] == list(taken)
        assert here.ids == [i for i in range(6) if i not in taken]
        assert made.entries == [entry for i, entry in enumerate(entries) if i not in taken]
        assert (here.history(), len(here.engine.tries)) == (1, 2)
        assert sorted(here.notes(), key=str) == [("begun", None), ("done", made.snapshot_id)]

    def test_all_may_be(self, both: tuple[Bench, Bench]) -> None:
        here, there = both
        self.begin(there, "k0", "k1")
        entries = [here.entry(i, key=f"k{i}") for i in range(2)]
        assert here.commit(entries) == []
        assert all(isinstance(failure(entry), KeyBusy) for entry in entries)
        assert (here.history(), len(here.engine.tries), here.notes()) == (0, 1, [("begun", None)])

    def test_also_those_that_were_answered_there(self, both: tuple[Bench, Bench]) -> None:
        here, there = both
        there.commit([there.entry(0, key="k0")])
        entries = [here.entry(0, key="k0"), here.entry(1, key="k1")]
        here.commit(entries)
        assert isinstance(failure(entries[0]), KeyBusy)
        assert (reported(entries[1])[0], here.ids, there.ids) == (1, [1], [0])

    def test_the_guilty_among_the_others_are_still_found(self, both: tuple[Bench, Bench]) -> None:
        here, there = both
        self.begin(there, "k1", "k6")
        here.engine.writing = guilty(4)
        entries = [here.entry(i, key=f"k{i}") for i in range(8)]
        here.commit(entries)
        refused = {i: type(e) for i, entry in enumerate(entries) if (e := failure(entry))}
        assert refused == {1: KeyBusy, 4: InvalidQuery, 6: KeyBusy}
        assert sorted(here.ids) == [0, 2, 3, 5, 7]

    def test_of_two_that_commit_the_same_at_once_each_entry_is_written_once(self, both: tuple[Bench, Bench]) -> None:
        """Their batches overlap; what one is refused the other has written."""
        for turn in range(5):
            meet = threading.Barrier(2, timeout=30)
            ids = range(turn * 10, turn * 10 + 6)
            halves = (ids[:4], ids[2:])
            parts = [[bench.entry(i, key=f"k{i}") for i in wanted] for bench, wanted in zip(both, halves, strict=True)]

            def commit(bench: Bench, part: list[PendingWrite], meet: threading.Barrier = meet) -> None:
                meet.wait()
                bench.commit(part)

            threads = [threading.Thread(target=commit, args=(b, p)) for b, p in zip(both, parts, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            failures = [failure(entry) for part in parts for entry in part]
            assert sum(isinstance(f, KeyBusy) for f in failures) == 2
            assert sum(f is None for f in failures) == 6
            assert sorted(i for bench in both for i in bench.ids if i >= turn * 10) == list(ids)

    @pytest.mark.parametrize("when", ["writing", "committing"])
    def test_a_batch_that_was_taken_over_while_it_was_written_is_not_committed(
        self, both: tuple[Bench, Bench], when: str
    ) -> None:
        """It is begun anew as another batch, unless its keys were used by then."""
        here, there = both
        taken: list[str] = []

        def take_over(rows: Rows) -> None:
            if taken:
                return
            wait_until(lambda: bool(here.ledger.unfinished()), 5, every=0.001)
            here.ledger.owners.close()
            [noted] = here.ledger.unfinished()
            taken.append(noted.batch)
            assert there.commits.batches.recover() == 1

        entries = [here.entry(1, key="k1"), here.entry(2)]
        if when == "writing":
            here.engine.writing = take_over
        else:
            begin = here.commits.batches.begin

            def and_lose(*args: Any, **more: Any) -> None:
                begin(*args, **more)
                take_over([])

            here.commits.batches.begin = and_lose  # type: ignore[method-assign, assignment]  # just before the commit
        [made] = here.commit(entries)
        assert made.batch != taken[0]
        assert (here.ids, there.catalog.fences) == ([1, 2], taken)
        assert here.catalog.load(ORDERS).committed_by(taken[0]) is None
        noted = here.ledger.find(taken[0])
        assert noted
        assert noted.state == "void"


class TestTogether:
    """The rows of a batch: all of them, in order, in one piece, which one task writes into one file per partition."""

    @pytest.mark.parametrize("sizes", [[1], [2, 3], [1500], [1, 1500, 1, 1, 1200, 1100, 2]])
    def test_small_and_large_entries_keep_their_order(self, bench: Bench, sizes: list[int]) -> None:
        entries, first = [], 0
        for size in sizes:
            entries.append(bench.entry(*range(first, first + size)))
            first += size
        rows = together(entries)
        assert rows.column("id").to_pylist() == list(range(first))
        assert rows.column("id").num_chunks == 1
        assert [e.small for e in entries] == [size <= 1000 for size in sizes]

    def test_absent_values_are_null_in_every_entry(self, bench: Bench) -> None:
        bench.catalog.evolve(ORDERS, WIDER)
        table = bench.catalog.load(ORDERS)
        entries = [PendingWrite(ORDERS, Call("r"), [record], 1, reply) for record in ({"id": 1}, {"note": "n"}, {})]
        for entry in entries:
            entry.fit(table)
        rows = [{"id": 1, "note": None}, {"id": None, "note": "n"}, {"id": None, "note": None}]
        assert together(entries).to_pylist() == rows


class TestClosed:
    """What is being committed when it is closed ends as it would; what was not begun is not."""

    def test_what_was_committed_is_answered_though_its_end_is_not_noted(self, bench: Bench) -> None:
        entries = bench.entries(2)
        [made] = bench.batches.commit(entries).committed
        bench.commits.batches.close()
        bench.batches.respond(made)
        assert [reported(e)[1] for e in entries] == [made.snapshot_id] * 2
        assert bench.restarted().commits.batches.recover() == 1
        assert bench.notes() == [("done", made.snapshot_id)]

    def test_what_cannot_be_noted_any_more_is_refused_at_once_and_not_committed(self, bench: Bench) -> None:
        bench.commits.batches.close()
        entries = bench.entries(8)
        assert bench.commit(entries) == []
        assert all(isinstance(failure(e), ShuttingDown) for e in entries)
        assert (bench.ids, bench.notes(), bench.engine.tries) == ([], [], [])


def test_no_thread_is_left_of_a_closed_one(bench: Bench) -> None:
    bench.commit(bench.entries(1))
    bench.commits.batches.close()
    wait_until(
        lambda: not [t for t in threading.enumerate() if t in bench.commits.batches._recording._threads], 5, every=0.01
    )
