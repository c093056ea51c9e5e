"""The rounds of a repartition, over a table in memory that others go on changing."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.files.data_files import DataFile, TableFiles
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.engine.iceberg.compaction import sweep
from service.engine.jobs.relayout import rewrite
from service.engine.jobs.repartition import RepartitionSource, WrittenFiles, added_up, discard, source_at, together
from service.engine.sql.checksum import Checksum
from service.errors import (
    Cancelled,
    ChecksumMismatch,
    CommitConflict,
    InvalidRequest,
    RowCountMismatch,
    TableNotFound,
)
from service.maintenance.repartition import rounds as module
from service.maintenance.repartition.report import RepartitionProgress
from service.maintenance.repartition.rounds import LITTLE_BYTES, MOST_ROUNDS, RewriteRounds
from service.model.call import Call

BIG = LITTLE_BYTES + 1


@dataclass
class World:
    """A table: its files by their paths with the rows in them, and what a rewriting wrote of them."""

    files: dict[str, DataFile] = field(default_factory=dict)
    deletes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    uuid: str = "one"
    schema_id: int = 0
    spec_id: int = 0
    version: int = 1
    on_disk: set[int] = field(default_factory=set)
    """The batches whose files are there, by their number."""
    batches: list[list[str]] = field(default_factory=list)
    positions: list[range | None] = field(default_factory=list)
    """Of each batch: the positions in its file, if it is a part of one."""
    meanwhile: Callable[["World"], object] = lambda world: None
    spoil: Callable[[WrittenFiles], WrittenFiles] = lambda written: written
    lock: Any = field(default_factory=threading.Lock)

    def add(self, *paths: str, size: int = 100, spec: int = 0, rows: int = 10) -> None:
        self.version += 1
        self.files |= {path: DataFile(path, size, rows, (spec,)) for path in paths}

    def remove(self, *paths: str) -> None:
        self.version += 1
        for path in paths:
            self.files.pop(path, None)

    # As a catalog:
    def load(self, name: str) -> Any:
        return SimpleNamespace(
            name=SimpleNamespace(table=name),
            uuid=self.uuid,
            schema_id=self.schema_id,
            spec_id=self.spec_id,
            spark_name=name,
            current_snapshot_id=self.version,
            files=TableFiles(tuple(self.files.values())),
        )

    # As commits:
    def current(self, table: Any) -> Any:
        return Commits.current(cast(Any, SimpleNamespace(_catalog=self)), table)

    # As an engine:
    sessions = 4

    def run_for(self, call: Call, job: Any, *args: Any, **how: Any) -> Any:
        return self.run(job, *args, **how)

    def run(self, job: Any, *args: Any) -> Any:
        if job is source_at:
            return RepartitionSource(None, self.version, None, dict(self.deletes))
        if job is rewrite:
            source, _, paths, recipe, _, *positions = args
            return self._write(source, paths, recipe.validate, *positions)
        if job is together:
            return self._together(*args)
        if job is discard:
            self.on_disk.discard(args[1].handle)
        elif job is sweep:
            self.on_disk.clear()
        return None

    def cancel(self, tag: str) -> None: ...

    def rows_written(self, tag: str) -> int:
        return 0

    def _together(self, parts: list[WrittenFiles]) -> WrittenFiles:
        with self.lock:
            assert len({tuple(self.batches[part.handle]) for part in parts}) == 1
            return added_up(parts[0].handle, parts)

    def _write(
        self, source: RepartitionSource, paths: list[str], validate: bool, positions: range | None = None
    ) -> WrittenFiles:
        with self.lock:
            number = len(self.batches)
            self.batches.append(list(paths))
            self.positions.append(positions)
            self.on_disk.add(number)
            rows = 10 * len(paths) if positions is None else len(positions)
            check = Checksum(rows, number) if validate else None
            self.meanwhile(self)
            return self.spoil(WrittenFiles(number, 1, rows, 100, check, check, 2))


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "list_files", lambda table: table.files)


@contextmanager
def listing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "list_files", lambda table: table.files)
        yield


def rounds(world: World, *, every: bool = True, rows: int | None = None, validate: bool = True) -> RewriteRounds:
    return RewriteRounds(
        cast(Any, world),
        cast(Any, world),
        SnapshotHolds(),
        cast(Any, world.load("t")),
        Call(current_progress=RepartitionProgress()),
        goal=cast(Any, SimpleNamespace(spec_id=1)),
        recipe=cast(Any, SimpleNamespace(validate=validate)),
        batch_rows=rows,
        batch_bytes=10 * BIG,
        at_once=2,
        folder="f",
        tag="t",
        every_file=every,
    )


def covered(world: World, made: RewriteRounds) -> list[str]:
    return sorted(path for one in made.written for path in world.batches[one.handle]) + sorted(made.kept)


def test_what_nobody_changes_takes_one_round() -> None:
    world = World()
    world.add("a", "b", "c")
    made = rounds(world, rows=10)
    made.run()
    made.finish(cast(Any, world.load("t")))
    assert (made.rounds, made.batches, made.spark_jobs, made.rows) == (1, 3, 6, 30)
    assert covered(world, made) == ["a", "b", "c"]
    assert str(made.checksum) == f"{0 + 1 + 2:016x}"


def test_a_file_with_more_rows_than_a_batch_is_rewritten_in_parts_one_after_the_other() -> None:
    world = World()
    world.add("a", "b")
    made = rounds(world, rows=4)
    made.run()
    assert (made.rounds, made.batches, made.spark_jobs, made.rows) == (1, 6, 12, 20)
    of_a = [part for path, part in zip(world.batches, world.positions, strict=True) if path == ["a"]]
    assert of_a == [range(3), range(3, 6), range(6, 10)]
    assert str(made.checksum) == f"{sum(range(6)):016x}"


def test_parts_of_a_file_that_lack_a_row_are_refused() -> None:
    world = World()
    world.add("a")
    world.spoil = lambda written: replace(written, rows=3)
    with pytest.raises(RowCountMismatch):
        rounds(world, rows=4, validate=False).run()


def test_more_parts_than_a_commit_can_hold_files_are_refused_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 9)
    world = World()
    world.add("a")
    with pytest.raises(InvalidRequest, match="a larger batch_size"):
        rounds(world, rows=1).run()
    assert world.batches == []


def test_a_little_that_came_meanwhile_is_left_to_the_last_round() -> None:
    world = World()
    world.add("a")
    changes = iter([lambda: world.add("b")])
    world.meanwhile = lambda world: next(changes, lambda: None)()
    made = rounds(world)
    made.run()
    assert (made.rounds, covered(world, made)) == (1, ["a"])
    made.finish(cast(Any, world.load("t")))
    assert (made.rounds, covered(world, made)) == (2, ["a", "b"])


def test_much_that_came_meanwhile_takes_further_rounds_while_nobody_waits() -> None:
    world = World()
    world.add("a", size=BIG)
    changes = iter([lambda: world.add("b", size=BIG), lambda: world.add("c", size=BIG)])
    world.meanwhile = lambda world: next(changes, lambda: None)()
    made = rounds(world)
    made.run()
    assert (made.rounds, covered(world, made)) == (3, ["a", "b", "c"])


def test_rounds_end_though_others_never_do() -> None:
    world = World()
    world.add("0", size=BIG)
    numbers = itertools.count(1)
    world.meanwhile = lambda world: world.add(str(next(numbers)), size=BIG)
    made = rounds(world)
    made.run()
    assert made.rounds == MOST_ROUNDS


def test_nobody_is_kept_waiting_for_a_last_round_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.add("a", size=BIG)
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    made = rounds(world)
    made.run()
    world.add("b", size=BIG)
    with pytest.raises(CommitConflict, match="faster than it can be rewritten"):
        made.finish(cast(Any, world.load("t")))
    made.finish(cast(Any, world.load("t")), patient=True)
    assert covered(world, made) == ["a", "b"]


def test_files_that_lie_where_they_should_are_kept_unless_every_one_is_to_be_written() -> None:
    world = World()
    world.add("a")
    world.add("b", spec=1)
    some, every = rounds(world, every=False), rounds(world)
    some.run()
    every.run()
    assert (covered(world, some), some.kept, some.rows) == (["a", "b"], ["b"], 20)
    assert (covered(world, every), every.kept) == (["a", "b"], [])


def test_a_batch_that_others_spoilt_leaves_no_file() -> None:
    world = World()
    world.add("a", "b")
    made = rounds(world)
    made.run()
    world.remove("a")
    world.deletes["b"] = ("d",)
    made.finish(cast(Any, world.load("t")))
    assert covered(world, made) == ["b"]
    assert world.on_disk == {one.handle for one in made.written}


actions = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "delete"]), st.integers(0, 9), st.booleans()), min_size=0, max_size=12
)


@given(st.sets(st.integers(0, 9)), actions, st.integers(1, 3))
def test_whatever_others_do_what_is_published_is_what_the_table_holds_each_file_once(
    first: set[int], changes: list[tuple[str, int, bool]], at_once: int
) -> None:
    world = World()
    world.add(*map(str, first))
    left = iter(changes)
    new = itertools.count(10)

    def meanwhile(world: World) -> None:
        for kind, number, go_on in left:
            if kind == "add":
                world.add(str(next(new)), size=BIG if go_on else 100)
            elif kind == "remove":
                world.remove(str(number))
            elif str(number) in world.files:
                world.deletes[str(number)] = (*world.deletes.get(str(number), ()), "d")
            if not go_on:
                break

    world.meanwhile = meanwhile
    with listing():
        made = rounds(world, rows=10 * at_once)
        made.run()
        world.meanwhile = lambda world: None  # the table's turn is ours
        made.finish(cast(Any, world.load("t")))
    assert covered(world, made) == sorted(world.files)
    assert made.rows == 10 * len(world.files)
    assert world.on_disk == {one.handle for one in made.written}
    progress = made.progress
    assert (progress.files_done, progress.bytes_done) == (progress.files_total, progress.bytes_total)


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda w: replace(w, rows=w.rows - 1), RowCountMismatch, "Row count mismatch: .* 10 rows and would have 9"),
        (
            lambda w: replace(w, written=Checksum(w.rows - 1, w.read.sum)),
            RowCountMismatch,
            "Row count mismatch: .* 10 rows and would have 9",
        ),
        (lambda w: replace(w, written=Checksum(w.rows, 77)), ChecksumMismatch, "Checksum mismatch: .*4d"),
    ],
)
def test_what_does_not_hold_the_rows_it_was_made_of_is_refused(
    spoil: Callable[[WrittenFiles], WrittenFiles], error: type[Exception], message: str
) -> None:
    world = World(spoil=spoil)
    world.add("a")
    with pytest.raises(error, match=message):
        rounds(world).run()


def test_rows_that_delete_files_took_are_not_counted_by_metadata() -> None:
    world = World(spoil=lambda w: replace(w, rows=7, read=Checksum(7, 1), written=Checksum(7, 1)))
    world.add("a")
    world.deletes["a"] = ("d",)
    made = rounds(world)
    made.run()
    assert made.rows == 7


@pytest.mark.parametrize("change", [{"schema_id": 1}, {"spec_id": 3}])
def test_a_table_whose_columns_or_partitioning_others_change_is_left_to_them(change: dict[str, int]) -> None:
    world = World()
    world.add("a")
    made = rounds(world)
    made.run()
    for key, value in change.items():
        setattr(world, key, value)
    with pytest.raises(CommitConflict, match="columns or partitioning"):
        made.finish(cast(Any, world.load("t")))


def test_a_new_table_of_the_same_name_is_another_one() -> None:
    world = World()
    made = rounds(world)
    world.uuid = "two"
    with pytest.raises(TableNotFound):
        made.run()


def test_a_cancelled_request_is_reported_as_cancelled_whatever_spark_says() -> None:
    world = World()
    world.add("a")
    made = rounds(world)
    called_off = []

    def check() -> None:
        if called_off:
            raise Cancelled

    def spoil(written: WrittenFiles) -> WrittenFiles:
        called_off.append(True)
        raise ValueError("job 7 was cancelled")

    world.spoil = spoil
    made.call.check = check  # type: ignore[method-assign]
    with pytest.raises(Cancelled):
        made.run()


def test_more_files_than_a_commit_can_hold_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    world = World()
    world.add("a", "b", "c")
    with pytest.raises(InvalidRequest, match="coarser") as e:
        rounds(world, rows=10).run()
    assert e.value.field == "partition"
