"""A compaction keeps what it has done, leaves to others what they changed, and leaves no files behind."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.table import Table as IcebergTable

from handlers.compact import Compact, compact
from service.catalog.files.data_files import DataFile, list_files
from service.catalog.tables import Catalog, Table
from service.engine.iceberg.carry_over import DeleteSearch
from service.engine.iceberg.compaction import (
    FileGroup,
    PlannedGroups,
    RewriteOptions,
    RewrittenGroup,
    commit,
    find_late_deletes,
    first_files_of,
    plan,
    rewrite_manifests,
    sweep,
    with_rows,
)
from service.engine.iceberg.expire import remove, unneeded_files
from service.engine.iceberg.swap import FilesChanged
from service.engine.jobs.rewrite import rewrite
from service.engine.session import tags
from service.errors import (
    Cancelled,
    CommitConflict,
    EngineUnavailable,
    FirnError,
    OutcomeUnknown,
    StorageUnavailable,
    TooManyRequests,
)
from service.ingest.periods.merges import PeriodMerges
from service.jobs.background import Background
from service.ledger.jobs import JobRecord
from service.ledger.ledger import NewBatch
from service.maintenance.compact.compaction import Compactions
from service.maintenance.compact.merge import Merger, folder_of
from service.maintenance.compact.plan import choose, core_shares, small_files_beside
from service.maintenance.compact.report import CompactionOptions, CompactionOutcome, CompactionProgress
from service.model.call import Call, IdempotencyKey
from service.model.names import BATCH_PROPERTY, FENCE_PROPERTY, TableName
from service.settings import CompactionSettings, IcebergSettings, Settings
from tests.fakes import FakeOwners
from tests.harness import wait_until
from tests.jobs import compaction
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, append, data_file, make_table, open_catalog
from tests.unit.metrics.test_metrics import of, value

Hook = Callable[[str], object]


@dataclass
class FakeSpark:
    """Merges files in a real catalog without reading any; each hook is told the partitions that are worked on."""

    catalog: Catalog
    rewriting: Hook = lambda partition: None
    committing: Hook = lambda partitions: None
    committed: Hook = lambda partitions: None
    written: set[str] = field(default_factory=set)
    """The new files that lie on the disk."""
    cancelled: list[str] = field(default_factory=list)
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Whoever else commits meanwhile holds it: PyIceberg refuses what Iceberg's rewriting allows."""
    sessions: int = 4
    did: list[str] = field(default_factory=list)
    """What was done beside merging."""
    beside: Exception | None = None
    """What that fails with."""

    def run_for(self, call: Call, job: Any, *args: Any, **how: Any) -> Any:
        return self.run(job, *args, **how)

    def run(self, job: Callable[..., Any], *args: Any) -> Any:
        does: dict[Any, Callable[..., Any]] = {
            plan: self.plan,
            first_files_of: lambda group, files, how: replace(group, files=files, handle=group.handle[:files]),
            with_rows: lambda groups: [replace(group, rows=10 * group.files) for group in groups],
            rewrite: self.rewrite,
            commit: self.commit,
            find_late_deletes: lambda *args: None,
            sweep: lambda table, folder, kept: self.written.intersection_update(kept),
            tags.settle: lambda tag: None,
            tags.jobs_of: lambda tag: 1,
            rewrite_manifests: lambda table, batch, tag: self.sort_manifests(),
            remove: self.remove,
            unneeded_files: lambda removed: [],
        }
        return does[job](*args)

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)

    def rows_written(self, tag: str) -> int:
        return 0

    def sort_manifests(self) -> int:
        if self.beside:
            raise self.beside
        self.did.append("manifests")
        return 1

    def remove(self, table: str, location: str, snapshots: list[int], refs: list[str]) -> None:
        if self.beside:
            raise self.beside
        self.did.append("expiry")
        self.catalog.load(ORDERS).iceberg.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()

    def plan(self, table: str, how: RewriteOptions, snapshot_id: int) -> PlannedGroups:
        groups: dict[str, list[str]] = {}
        for file in list_files(self.catalog.load(ORDERS), snapshot_id).data:
            groups.setdefault(str(file.group[1:]), []).append(file.path)
        found = [FileGroup(p, f[0], len(f), 1000 * len(f), 1, False, f) for p, f in groups.items() if len(f) > 1]
        return PlannedGroups(None, snapshot_id, tuple(sorted(found, key=lambda g: (-g.files, g.partition))))

    def rewrite(
        self, planned: PlannedGroups, group: FileGroup, how: RewriteOptions, folder: str, tag: str
    ) -> RewrittenGroup:
        name = f"{len(self.written)}-{group.files}.parquet"
        self.written.add(name)
        self.rewriting(group.partition)
        return RewrittenGroup(group, (name,))

    def commit(
        self,
        table: str,
        uuid: str,
        planned: PlannedGroups,
        done: list[RewrittenGroup],
        search: DeleteSearch,
        batch: str,
        gate: Callable[[], None],
    ) -> None:
        partitions = "+".join(one.group.partition for one in done)
        self.committing(partitions)
        with self.turn:
            self._swap(done, batch, gate)
        self.committed(partitions)

    def _swap(self, done: list[RewrittenGroup], batch: str, gate: Callable[[], None]) -> None:
        iceberg = self.catalog.load(ORDERS).iceberg
        live = {entry.data_file.file_path: entry.data_file for entry in _entries(iceberg)}
        if any(path not in live for one in done for path in one.group.handle):
            raise FilesChanged
        gate()
        with (
            iceberg.transaction() as change,
            change.update_snapshot({BATCH_PROPERTY: batch}).overwrite() as update,
        ):
            for one in done:
                for path in one.group.handle:
                    update.delete_data_file(live[path])
                country = live[one.group.handle[0]].partition
                path = f"{iceberg.location()}/data/{one.names[0]}"
                update.append_data_file(data_file(path, country, len(one.group.handle)))


def _entries(iceberg: IcebergTable) -> Iterator[Any]:
    snapshot = iceberg.current_snapshot()
    for manifest in snapshot.manifests(iceberg.io) if snapshot else ():
        yield from manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True)


class Setup(Composed):
    """Compactions of one table in a real catalog, by an engine that reads no files."""

    def __init__(self, home: Path) -> None:
        catalog = open_catalog(home)
        policy = IcebergSettings(compaction=CompactionSettings(min_files_to_compact=3, concurrent_groups=1))
        super().__init__(
            home / "ledger.db", catalog=catalog, engine=FakeSpark(catalog), settings=Settings(iceberg=policy)
        )
        self.spark: FakeSpark = self.engine
        self.compactions = self.parts[Compactions]
        make_table(catalog, partitioned=True)

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)

    def fill(self, *countries: str | None) -> None:
        append(self.table, *countries)

    def compact(self, call: Call | None = None, **option: Any) -> CompactionOutcome:
        return self.compactions.compact(
            self.table, CompactionOptions(expire_snapshots=False, **option), call or Call("r1")
        )

    def files(self) -> int:
        return len(list_files(self.table).data)

    def rows(self) -> int:
        return sum(file.rows for file in list_files(self.table).data)

    def unreferenced(self) -> set[str]:
        """New files on the disk that no snapshot holds."""
        held = {
            file.path.rpartition("/")[2]
            for snapshot in self.table.snapshots()
            for file in list_files(self.table, snapshot.snapshot_id).data
        }
        return self.spark.written - held

    def noted(self) -> list[tuple[str, str]]:
        return [(job.state, job.requested_by) for job in self.log()]

    def log(self) -> list[JobRecord]:
        return self.compactions.jobs.records.log("COMPACT", 10, table=ORDERS.table)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_partitions_with_enough_small_files_are_merged_in_one_commit(setup: Setup) -> None:
    setup.fill(*"AAABBBC")
    before = len(setup.table.snapshots())
    outcome = setup.compact()
    stats = outcome.stats
    assert (outcome.compacted, outcome.reason, setup.files(), setup.rows()) == (True, None, 3, 7)
    assert (stats.files_before, stats.files_after, stats.files_compacted, stats.files_added) == (7, 3, 6, 2)
    assert (stats.partitions_compacted, stats.conflicts, stats.groups_failed) == (2, 0, 0)
    assert len(setup.table.snapshots()) == before + 1
    assert setup.noted() == [("done", "request r1")]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_filter_that_matches_no_partition_is_the_reason(setup: Setup, dry_run: bool) -> None:
    setup.fill(*"AAABBB")
    option = {"filter_json": '{"type": "eq", "term": "country", "value": "X"}', "min_files": 99}
    outcome = setup.compact(**option, dry_run=dry_run)
    assert (outcome.compacted, setup.files()) == (False, 6)
    assert outcome.reason == "no data file is in a partition that partition_filter matches"


def test_a_group_that_others_changed_is_left_to_them_and_the_others_are_kept(setup: Setup) -> None:
    setup.fill(*"AAABBB")

    def delete_a_file_of_a(partitions: str) -> None:
        if "A" in partitions and setup.rows() == 6:
            iceberg = setup.table.iceberg
            first = next(e.data_file for e in _entries(iceberg) if e.data_file.partition[0] == "A")
            with iceberg.transaction() as change, change.update_snapshot().overwrite() as update:
                update.delete_data_file(first)

    setup.spark.committing = delete_a_file_of_a
    outcome = setup.compact()
    assert (outcome.compacted, outcome.stats.conflicts, outcome.stats.partitions_compacted) == (True, 1, 1)
    assert (setup.rows(), setup.files()) == (5, 3)
    assert setup.unreferenced() == set()
    # What was beaten is taken up next time.
    setup.spark.committing = lambda _: None
    assert setup.compact(min_files=2).stats.partitions_compacted == 1


def test_where_every_group_is_beaten_nothing_is_merged_and_it_says_so(setup: Setup) -> None:
    setup.fill(*"AAA")

    def beat(_: str) -> None:
        raise FilesChanged

    setup.spark.committing = beat
    outcome = setup.compact()
    assert (outcome.compacted, outcome.stats.conflicts, outcome.stats.files_compacted) == (False, 1, 0)
    assert "changed by other writers" in (outcome.reason or "")
    assert (setup.files(), setup.unreferenced()) == (3, set())


@pytest.mark.parametrize("busy", [CommitConflict("always another one"), TooManyRequests("no session")], ids=str)
def test_what_finds_no_turn_to_be_committed_is_a_conflict_and_not_the_end(setup: Setup, busy: FirnError) -> None:
    setup.compactions.merger = Merger(setup.engine, setup.commits, pauses_s=(0, 0))
    setup.fill(*"AAA")
    setup.spark.committing = fail_in("", busy)
    outcome = setup.compact()
    assert (outcome.compacted, outcome.stats.conflicts, setup.files()) == (False, 1, 3)
    assert (setup.unreferenced(), setup.noted()) == (set(), [("done", "request r1")])


def test_a_commit_that_finds_no_turn_is_tried_again(setup: Setup) -> None:
    setup.compactions.merger = Merger(setup.engine, setup.commits, pauses_s=(0, 0))
    setup.fill(*"AAA")
    failures = iter([TooManyRequests("no session"), TooManyRequests("no session")])

    def busy(_: str) -> None:
        for failure in failures:
            raise failure

    setup.spark.committing = busy
    outcome = setup.compact()
    assert (outcome.compacted, outcome.stats.conflicts, setup.files()) == (True, 0, 1)


def fail_in(partition: str, failure: Exception) -> Hook:
    def hook(worked_on: str) -> None:
        if partition in worked_on:
            raise failure

    return hook


def test_a_group_that_cannot_be_rewritten_keeps_no_other_from_it(setup: Setup) -> None:
    setup.fill(*"AAABBB")
    setup.spark.rewriting = fail_in("A", StorageUnavailable("the disk is broken"))
    outcome = setup.compact()
    assert (outcome.stats.groups_failed, outcome.stats.partitions_compacted, setup.rows()) == (1, 1, 6)
    assert setup.unreferenced() == set()


def test_where_no_group_can_be_rewritten_the_first_reason_is_given(setup: Setup) -> None:
    setup.fill(*"AAABBB")
    setup.spark.rewriting = fail_in("", StorageUnavailable("the disk is broken"))
    with pytest.raises(StorageUnavailable, match="the disk is broken"):
        setup.compact()
    assert (setup.files(), setup.unreferenced(), setup.noted()) == (6, set(), [("failed", "request r1")])


def test_an_engine_that_ends_is_not_asked_for_the_other_groups(setup: Setup) -> None:
    setup.fill(*"AAABBBCCC")
    seen: list[str] = []

    def end(partition: str) -> None:
        seen.append(partition)
        raise EngineUnavailable("Spark ended")

    setup.spark.rewriting = end
    with pytest.raises(EngineUnavailable):
        setup.compact()
    assert len(seen) == 1


def test_what_is_finished_is_committed_now_and_then_and_the_figures_add_up(setup: Setup) -> None:
    setup.fill(*"AAABBBCCC")
    setup.compactions.merger = Merger(setup.engine, setup.commits, every_s=0)
    made = threading.Semaphore(1)

    def later(_: str) -> None:
        assert made.acquire(timeout=30)  # the group before this one is committed
        with setup.spark.turn:
            append(setup.table, "D")  # somebody else writes meanwhile

    setup.spark.rewriting = later
    setup.spark.committed = lambda _: made.release()
    before = len(setup.table.snapshots())
    stats = setup.compact().stats
    assert len(setup.table.snapshots()) == before + 3 + 3
    assert (stats.files_compacted, stats.files_added) == (9, 3)
    assert stats.files_before - stats.files_removed + stats.files_added == stats.files_after
    assert setup.rows() == 12


def test_a_cancelled_compaction_keeps_what_was_committed_and_deletes_the_rest(setup: Setup) -> None:
    setup.fill(*"AAABBB")
    call = Call("r1", requested_by="schedule nightly")
    setup.compactions.merger = Merger(setup.engine, setup.commits, every_s=0)
    setup.spark.committed = lambda _: call.cancel()
    with pytest.raises(Cancelled) as called_off:
        setup.compactions.compact(setup.table, CompactionOptions(), call)
    assert called_off.value.details == {"files_compacted": 3, "files_added": 1, "partitions_compacted": 1}
    assert (setup.files(), setup.rows(), setup.unreferenced()) == (4, 6, set())
    assert setup.spark.cancelled
    assert setup.noted() == [("cancelled", "schedule nightly")]
    counted(setup, files_before=6, files_after=4, files_compacted=3, files_added=1, partitions_compacted=1)
    assert value(setup.metrics, "firn_compaction_merged_files_total") == 3


def test_failed_on_the_way_it_tells_what_it_had_committed(setup: Setup) -> None:
    setup.fill(*"AAABBB")
    setup.compactions.merger = Merger(setup.engine, setup.commits, every_s=0)
    merged = threading.Event()
    setup.spark.committed = lambda _: merged.set()

    def fail(partition: str) -> None:
        if "B" in partition:
            merged.wait(30)
            raise EngineUnavailable("Spark ended")

    setup.spark.rewriting = fail
    with pytest.raises(EngineUnavailable):
        setup.compact()
    counted(setup, files_before=6, files_after=4, files_compacted=3, small_files_remaining=4)
    assert of(setup.metrics, ORDERS)["firn_table_compaction_files after"] == 4


def counted(setup: Setup, **figures: int) -> None:
    """The latest note has these among its stats."""
    [note, *_] = setup.log()
    stats = note.details["stats"] or {}
    assert {name: stats.get(name) for name in figures} == figures


def test_a_spark_job_that_starts_during_the_cancellation_is_cancelled_too(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.maintenance.rewriter._LOOK_EVERY_S", 0.01)
    setup.fill(*"AAA")
    call = Call("r1")

    def begin_late(_: str) -> None:
        call.cancel()
        wait_until(lambda: len(setup.spark.cancelled) > 2, 10)  # the first may have been too early

    setup.spark.rewriting = begin_late
    with pytest.raises(Cancelled):
        setup.compactions.compact(setup.table, CompactionOptions(), call)
    assert (setup.files(), setup.unreferenced()) == (3, set())


def test_whatever_error_a_cancelled_compaction_meets_is_reported_as_cancelled(setup: Setup) -> None:
    setup.fill(*"AAA")
    call = Call("r1")

    def cancelled_in_spark(_: str) -> None:
        call.cancel()
        raise EngineUnavailable("a job ended")

    setup.spark.rewriting = cancelled_in_spark
    with pytest.raises(Cancelled):
        setup.compactions.compact(setup.table, CompactionOptions(), call)
    assert setup.noted() == [("cancelled", "request r1")]


def test_a_compaction_that_waits_for_another_of_its_table_can_be_cancelled(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.commits.locks._CHECK_EVERY_S", 0.01)
    setup.fill(*"AAA")
    call = Call("r1")
    call.cancel()
    with setup.compactions._locks.hold(setup.table.uuid):
        waiting = ThreadPoolExecutor(1).submit(setup.compactions.compact, setup.table, CompactionOptions(), call)
        with pytest.raises(Cancelled):
            waiting.result(timeout=30)
    assert setup.noted() == []  # it never began
    assert setup.compact().compacted


def test_work_that_was_given_to_somebody_else_is_not_committed(setup: Setup) -> None:
    setup.fill(*"AAA")

    def taken() -> None:
        raise CommitConflict("this run was taken over")

    with pytest.raises(CommitConflict, match="taken over"):
        setup.compact(Call("r1", commit_gate=taken))
    assert (setup.files(), setup.unreferenced()) == (3, set())


def test_what_comes_after_the_merge_is_left_undone_as_well_where_the_work_is_somebody_elses(setup: Setup) -> None:
    setup.fill(*"AAA")
    asked: list[str] = []

    def taken_after_the_merge() -> None:
        asked.append("")
        if len(asked) > 1:
            raise CommitConflict("this run was taken over")

    option = CompactionOptions(rewrite_manifests=True, snapshot_retention_hours=0)
    call = Call("r1", commit_gate=taken_after_the_merge)
    setup.compactions.compact(setup.table, option, call)
    assert (setup.files(), setup.spark.did) == (1, [])
    setup.fill(*"AAA")
    setup.compactions.compact(setup.table, option, Call("r2"))
    assert setup.spark.did == ["manifests", "expiry"]


def test_what_fails_after_the_merge_is_told_and_the_compaction_is_done(setup: Setup) -> None:
    setup.fill(*"AAA")
    option = CompactionOptions(rewrite_manifests=True, snapshot_retention_hours=0)
    setup.spark.beside = StorageUnavailable("the disk is broken")
    outcome = setup.compactions.compact(setup.table, option, Call("r1"))
    assert (outcome.compacted, outcome.stats.files_compacted, setup.files()) == (True, 3, 1)
    assert [warning.rpartition(": ")[2] for warning in outcome.warnings] == ["the disk is broken"] * 2
    [note] = setup.log()
    assert note.state == "done"
    assert "old snapshots were kept: STORAGE_UNAVAILABLE" in (note.details["error"] or "")
    with pytest.raises(StorageUnavailable):  # nothing was merged that it could take the success from
        setup.compactions.compact(setup.table, option, Call("r2"))
    assert setup.noted()[0] == ("failed", "request r2")


def test_one_that_may_not_begin_any_more_when_it_has_its_turn_does_not(setup: Setup) -> None:
    setup.fill(*"AAA")
    window = ["open"]

    def may_begin() -> None:
        if not window:
            raise Cancelled("the window is over")

    def compact() -> None:
        with pytest.raises(Cancelled, match="window"):
            setup.compact(Call("r1", start_gate=may_begin))
        window.append("it was asked")

    waiting = threading.Thread(target=compact)
    with setup.compactions._locks.hold(setup.table.uuid):  # another compaction of the table
        waiting.start()
        waiting.join(0.2)
        window.clear()
    waiting.join(30)
    assert (window, setup.files(), setup.noted()) == (["it was asked"], 3, [])


def test_in_the_background_it_is_still_for_whoever_asked_and_can_still_be_taken_away(setup: Setup) -> None:
    setup.fill(*"AAA")

    def taken() -> None:
        raise CommitConflict("this run was taken over")

    class AtOnce:
        """The background is here and now."""

        def start(
            self, kind: str, table: Table, progress: CompactionProgress, call: Call, work: Callable[[Call], bytes]
        ) -> str:
            jobs = setup.compactions.jobs
            job = jobs.accept(kind, table, progress, call=call.without_key(progress))
            try:
                jobs.done(job, work(job.call))
            except FirnError:
                jobs.failed(job, b"{}")
                raise
            return job.id

    def run(call: Call) -> None:
        compactions = setup.compactions
        background = cast(Background, AtOnce())
        merges = setup.parts[PeriodMerges]
        small_files = compactions.small_files
        compact.handler(request, call, setup.catalog, background, compactions, small_files, merges)

    request = Compact.model_validate(
        {"operation": "COMPACT", "tenant_id": "acme", "namespace": "shop", "table": "orders", "async": True}
    )
    key = IdempotencyKey("COMPACT", ORDERS, "k", "f")
    with pytest.raises(CommitConflict, match="taken over"):
        run(Call("r1", key, commit_gate=taken, requested_by="schedule nightly"))
    run(Call("r1", key, commit_gate=lambda: None, requested_by="schedule nightly"))
    assert setup.noted() == [("done", "schedule nightly"), ("failed", "schedule nightly")]


def test_files_of_a_commit_that_nobody_can_tell_of_stay(setup: Setup) -> None:
    setup.fill(*"AAA")
    setup.spark.committed = fail_in("", OutcomeUnknown("the catalog fell silent"))
    setup.spark.committing = lambda _: None
    outcome = setup.compact()  # its history tells
    assert outcome.compacted

    setup.fill(*"BBB")
    setup.spark.committed = lambda _: None
    setup.spark.committing = fail_in("B", OutcomeUnknown("the catalog fell silent"))
    with pytest.raises(OutcomeUnknown):
        setup.compact()
    assert len(setup.unreferenced()) == 1


def test_a_dry_run_says_what_would_be_done_and_does_nothing(setup: Setup) -> None:
    setup.fill(*"AAAABBBC")
    before = setup.table.metadata_location
    outcome = setup.compact(dry_run=True)
    assert [(g.files, g.expected_files) for g in outcome.plan or ()] == [(4, 1), (3, 1)]
    assert not outcome.compacted
    assert (setup.table.metadata_location, setup.spark.written, setup.noted()) == (before, set(), [])


@pytest.mark.parametrize(
    ("countries", "properties", "reason"),
    [
        ("AAB", {}, "3 small file(s), but no partition has the 3 that make merging worth it"),
        ("AAA", {"enabled": "false"}, "compaction is disabled for this table; force: true compacts it all the same"),
        ("AAA", {"mode": "off"}, "compaction is disabled for this table; force: true compacts it all the same"),
    ],
)
def test_a_dry_run_says_that_nothing_would_be_done_where_nothing_would(
    setup: Setup, countries: str, properties: dict[str, str], reason: str
) -> None:
    setup.fill(*countries)
    setup.catalog.set_properties(setup.table, {f"firn.compaction.{name}": v for name, v in properties.items()})
    dry = setup.compact(dry_run=True)
    assert (dry.plan, dry.reason) == ((), setup.compact().reason)
    assert (dry.reason or "").startswith(reason)
    assert setup.compact(dry_run=True, force=True).reason == "this was a dry run"


def test_a_dry_run_counts_the_files_that_it_plans_for(setup: Setup) -> None:
    setup.fill("A")
    seen_by_the_request = setup.table
    setup.fill(*"AA")
    outcome = setup.compactions.compact(seen_by_the_request, CompactionOptions(dry_run=True), Call("r1"))
    assert [group.files for group in outcome.plan or ()] == [outcome.stats.files_before] == [3]


def test_what_is_unforeseen_is_noted_without_the_inside(setup: Setup) -> None:
    setup.fill(*"AAA")
    setup.spark.rewriting = fail_in("", RuntimeError("org.apache.Inside"))
    with pytest.raises(RuntimeError):
        setup.compact()
    [note] = setup.log()
    assert "Inside" not in (note.details["error"] or "")
    assert "error id" in (note.details["error"] or "")


def test_progress_tells_files_and_bytes_done_of_all(setup: Setup) -> None:
    setup.fill(*"AAABBB")
    progress = CompactionProgress()
    seen: list[tuple[int, int]] = []
    setup.spark.rewriting = lambda _: seen.append((progress.files_done, progress.files_total))
    setup.compactions.compact(setup.table, CompactionOptions(), Call("r1", current_progress=progress))
    assert seen[0] == (0, 6)
    assert (progress.phase, progress.files_done, progress.bytes_done, progress.bytes_total) == ("done", 6, 6000, 6000)
    assert (progress.records_done, progress.records_total) == (60, 60)


def test_the_record_has_the_options_and_the_counts(setup: Setup) -> None:
    setup.fill(*"AAA")
    setup.compact(max_files=7)
    [note] = setup.log()
    assert note.details["request"]["max_files"] == 7
    assert note.details["stats"]["files_compacted"] == 3


class TestLeftBehind:
    """A compaction whose instance ended while it ran."""

    there: FakeOwners

    @pytest.fixture(autouse=True)
    def started(self, setup: Setup) -> None:
        self.there = FakeOwners("there")
        setup.fill("A")
        setup.ledger.owners = self.there
        compaction(setup.compactions.jobs.records, "1", ORDERS, setup.table.uuid, 1)
        setup.ledger.owners = self.there.beside("here")
        folder = folder_of(setup.table, "compact-1")
        assert folder.startswith("file:///")
        # As Hadoop, which writes it, spells the same place.
        append(setup.table, "A", path=f"{folder.replace('file:///', 'file:/')}/kept.parquet")
        setup.spark.written = {"kept.parquet", "left.parquet"}

    def test_its_files_that_no_snapshot_holds_are_removed_and_it_was_interrupted(self, setup: Setup) -> None:
        self.there.close()
        assert setup.compactions.jobs.recover() == 1
        assert setup.spark.written == {"kept.parquet"}
        assert setup.noted() == [("interrupted", "auto")]
        assert setup.compactions.jobs.recover() == 0

    def test_what_it_had_committed_is_counted(self, setup: Setup) -> None:
        self.there.close()
        append(setup.table, "B")
        append(setup.table, "A", path=f"{folder_of(setup.table, 'compact-1')}/more.parquet")
        setup.spark.written.add("more.parquet")
        setup.compactions.jobs.recover()
        counted(setup, files_before=1, files_after=3, files_added=2, partitions_compacted=1, small_files_remaining=4)

    def test_its_jvm_can_commit_nothing_of_it_any_more(self, setup: Setup) -> None:
        self.there.close()
        setup.compactions.jobs.recover()
        assert setup.table.snapshots()[-1].summary[FENCE_PROPERTY] == "compact-1"

    def test_one_whose_instance_lives_is_left_alone(self, setup: Setup) -> None:
        assert setup.compactions.jobs.recover() == 0
        assert setup.spark.written == {"kept.parquet", "left.parquet"}
        assert setup.noted() == [("running", "auto")]

    def test_a_table_that_cannot_be_read_keeps_nobody_from_the_start_and_is_tried_again(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.there.close()

        def unreadable(name: TableName) -> Table:
            raise ValueError("no metadata of any kind")

        with monkeypatch.context() as broken:
            broken.setattr(setup.catalog, "load", unreadable)
            assert setup.compactions.jobs.recover() == 1
        assert [job.id for job in setup.compactions.jobs.records.with_leftover_files()] == ["1"]
        setup.compactions.jobs.recover()
        assert (setup.noted(), setup.spark.written) == ([("interrupted", "auto")], {"kept.parquet"})

    def test_of_a_table_that_is_gone_nothing_is_left_to_do(self, setup: Setup) -> None:
        self.there.close()
        setup.catalog.drop(setup.table, purge=True)
        assert setup.compactions.jobs.recover() == 1
        assert setup.noted() == [("interrupted", "auto")]


class TestAgain:
    """A COMPACT with a key whose earlier attempt got no answer."""

    key = IdempotencyKey("COMPACT", ORDERS, "k1", "print")

    @pytest.fixture(autouse=True)
    def started(self, setup: Setup) -> None:
        setup.fill("A")
        started = NewBatch("b1", ORDERS, setup.table.uuid, "COMPACT", ["r1"], keys={self.key.id: self.key.fingerprint})
        setup.ledger.begin(started)

    def test_what_was_merged_is_answered_and_not_that_there_is_nothing_left_to_merge(self, setup: Setup) -> None:
        made = append(setup.table, "A", batch="b1")
        outcome = setup.compact(Call("r2", self.key, "b1"))
        assert (outcome.compacted, outcome.reason, outcome.snapshot_id) == (True, None, made)
        assert (outcome.stats.files_before, outcome.stats.files_after) == (1, 2)
        noted = setup.ledger.find("b1")
        assert noted
        assert (noted.state, noted.snapshot_id) == ("done", made)

    def test_if_nothing_was_merged_the_table_is_checked_again(self, setup: Setup) -> None:
        outcome = setup.compact(Call("r2", self.key, "b1"))
        assert not outcome.compacted
        assert "1 small file" in (outcome.reason or "")


@dataclass(frozen=True)
class Bundle:
    partition: str
    files: int
    expected_files: int = 1
    heavy: bool = False
    path: str = ""


class TestChoose:
    def test_a_partition_is_worth_it_by_all_its_bundles_together(self) -> None:
        bundles = [Bundle("a", 3), Bundle("a", 2), Bundle("b", 4)]
        assert choose(bundles, 5, 100, {}) == [(bundles[0], 3), (bundles[1], 2)]

    def test_at_most_so_many_files_are_taken_and_one_alone_is_not(self) -> None:
        bundles = [Bundle("a", 5), Bundle("b", 5), Bundle("c", 5)]
        assert choose(bundles, 2, 8, {}) == [(bundles[0], 5), (bundles[1], 3)]
        assert choose(bundles, 2, 6, {}) == [(bundles[0], 5)]

    def test_what_would_not_become_fewer_is_left_alone(self) -> None:
        assert choose([Bundle("a", 2, expected_files=2)], 2, 100, {}) == []

    def test_work_that_is_larger_than_all_beside_it_has_the_cores_to_itself(self) -> None:
        assert core_shares([5, 5, 5, 5], 2) == [2, 2, 2, 2]
        assert core_shares([100, 1], 2) == [1, 2]
        assert core_shares([7], 2) == [1]
        assert core_shares([0, 0], 2) == [1, 1]

    def test_small_files_that_fit_into_no_bundle_count_for_their_partition(self) -> None:
        sizes = [63, 63, 63, 63, 63, 99]
        files = [DataFile(f"{i}", size, 1, (0, "a")) for i, size in enumerate(sizes)]
        bundle = Bundle("a", 4, path="0")
        beside = small_files_beside(files, 64, {"0"})
        assert beside == {"0": 5}
        assert choose([bundle], 5, 100, beside) == [(bundle, 4)]
        assert choose([bundle], 6, 100, beside) == []

    def test_files_of_which_much_is_deleted_are_worth_it_by_themselves(self) -> None:
        heavy = Bundle("a", 1, heavy=True)
        assert choose([heavy, Bundle("b", 2)], 3, 100, {}) == [(heavy, 1)]


class TestFigures:
    """What metrics are told of compactions, by their ends."""

    def test_what_was_merged_and_what_was_left_is_told_of_the_table(self, setup: Setup) -> None:
        metrics = setup.metrics
        setup.fill(*"AAABBBC")
        metrics.recommended(ORDERS)
        stats = setup.compact().stats
        assert of(metrics, ORDERS) == {
            "firn_table_small_files": stats.small_files_remaining,
            "firn_table_compaction_recommended": 0,
            "firn_table_compactions_total done": 1,
            "firn_table_compaction_files before": 7,
            "firn_table_compaction_files after": 3,
            "firn_table_compaction_bytes before": stats.bytes_before,
            "firn_table_compaction_bytes after": stats.bytes_after,
        }
        assert value(metrics, "firn_compaction_merged_files_total") == 6
        assert value(metrics, "firn_compaction_seconds_count") == 1

    def test_small_files_are_told_by_the_tables_own_measure(self, setup: Setup) -> None:
        setup.fill(*"AAA")
        setup.compact(max_file_size_mb=1)
        assert of(setup.metrics, ORDERS)["firn_table_small_files"] == 1

    def test_a_compaction_is_still_recommended_where_enough_small_files_are_left(self, setup: Setup) -> None:
        setup.fill(*"AAABBBB")
        setup.compact(max_files=4)
        reported = of(setup.metrics, ORDERS)
        assert (reported["firn_table_small_files"], reported["firn_table_compaction_recommended"]) == (4, 1)
        setup.compact()
        assert of(setup.metrics, ORDERS)["firn_table_compaction_recommended"] == 0

    def test_groups_that_failed_or_were_beaten_are_counted(self, setup: Setup) -> None:
        metrics = setup.metrics
        setup.fill(*"AAABBB")
        setup.spark.rewriting = fail_in("A", StorageUnavailable("the disk is broken"))
        setup.compact()
        setup.spark.rewriting = lambda _: None
        setup.spark.committing = fail_in("", FilesChanged())
        setup.compact()
        assert value(metrics, "firn_compaction_failed_groups_total") == 1
        assert value(metrics, "firn_compaction_conflicts_total") == 1
        assert value(metrics, "firn_compactions_total", outcome="done") == 1
        assert value(metrics, "firn_compactions_total", outcome="nothing") == 1

    def test_nothing_failed_and_cancelled_are_told_apart_and_a_dry_run_is_none(self, setup: Setup) -> None:
        metrics, call = setup.metrics, Call("r1")
        setup.compact()
        setup.fill(*"AAA")
        setup.compact(dry_run=True)
        setup.spark.rewriting = fail_in("", StorageUnavailable("the disk is broken"))
        with pytest.raises(StorageUnavailable):
            setup.compact()
        call.cancel()
        with pytest.raises(Cancelled):
            setup.compactions.compact(setup.table, CompactionOptions(), call)
        for outcome, times in (("nothing", 1), ("failed", 1), ("cancelled", 1), ("done", 0)):
            assert value(metrics, "firn_compactions_total", outcome=outcome) == times
