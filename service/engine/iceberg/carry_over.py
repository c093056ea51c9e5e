"""Deletes that arrive while files are merged: carried over to the merged files, in the commit of the merge.

A delete file names positions in an old file, which the merged files do not have. So the deleted rows are looked up in
these by their contents: of equal rows, it does not matter which are deleted.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from service.engine.iceberg.position_deletes import (
    DeleteTarget,
    WrittenDeletes,
    deleted_positions,
    own_deletes,
    tasks_with_deletes,
    write_delete_files,
)
from service.engine.iceberg.scan_tasks import SnapshotFiles, by_location, deletes_by_location, tasks
from service.engine.iceberg.staging import readable, readable_files
from service.engine.iceberg.swap import FilesChanged
from service.engine.session.java import array, each, iceberg_class, java_class
from service.engine.session.rows import collect
from service.engine.session.spark_types import SparkSession
from service.engine.sql.content import comparable, same
from service.engine.sql.sql import identifier
from service.model.properties import FORMAT_WITH_POSITIONS
from service.model.schema.types import TableSchema

_FILE, _POS, _N = "_firn_path", "_firn_pos", "_firn_n"
_DELETED = "another writer deleted rows of files that were to be merged"
_RESTORED = "another writer restored rows of files that were to be merged"


class MovedPlaces(Protocol):
    """Finds, without Spark, where rows are in merged files, and remembers it."""

    def find(self, places: Mapping[str, pa.Array], files: Mapping[str, int]) -> Mapping[str, pa.Array] | None:
        """The rows at some places among those of merged files, which have these numbers of rows; None if that is better
        left to Spark."""

    def keep(self, places: Mapping[str, pa.Array], found: Mapping[str, pa.Array]) -> None:
        """Remember what Spark has found: later places are searched beside these."""


@dataclass(frozen=True)
class _FileDeletes:
    """The delete files of an old file, as they were when they were read."""

    text: str
    own: tuple[Any, ...]
    """Those that apply to it alone."""
    since: pa.Array
    """The positions that were deleted since the plan."""


@dataclass(frozen=True)
class _Planned:
    """The old files that had delete files when the plan was made."""

    tasks: Mapping[str, Any]
    """By location."""
    rows: int | None
    """How many rows these deleted; None if only reading them shows that."""


@dataclass
class DeleteSearch:
    """The search for rows that were deleted since a plan, for one commit of merged files. It remembers what it read and
    found: writers wait only for what was deleted after it ran last."""

    moved: MovedPlaces
    schema: TableSchema
    """All columns of the table."""
    dangling: bool = False
    """Whether there are delete files of data files that are gone."""
    before: _Planned | None = None
    known: dict[str, _FileDeletes] = field(default_factory=dict)


@dataclass(frozen=True)
class LateDeletes:
    """What was deleted, since a snapshot, from files that are merged."""

    places: Mapping[str, pa.Array]
    """The rows that were deleted since, by their places in the old files."""
    void: tuple[Any, ...]
    """All delete files that apply to the old files alone."""
    planned: int | None
    """How many rows were deleted before; None if only reading them shows that."""


def late_deletes(iceberg: Any, planned: Any, snapshot_id: int, old: Sequence[str], search: DeleteSearch) -> LateDeletes:
    """What was deleted from old files since a snapshot of `planned`, the table as it was then.

    Raises FilesChanged if an old file is no longer there, or has new deletes that may apply to other files too.
    """
    before = search.before = search.before or _planned(tasks(planned, snapshot_id, old))
    every = tasks(iceberg, int(iceberg.currentSnapshot().snapshotId()), old)
    if int(every.size()) != len(old):
        raise FilesChanged("another writer removed files that were to be merged")
    found = tasks_with_deletes(every)
    texts = deletes_by_location(found)
    if before.tasks.keys() - texts.keys():
        raise FilesChanged(_RESTORED)
    new = [path for path, text in texts.items() if path not in search.known or search.known[path].text != text]
    now: Any = by_location(found) if new else None
    for path in new:
        search.known[path] = _since(iceberg.io(), path, texts[path], before.tasks.get(path), now.get(path))
    deletes = [search.known[path] for path in texts]
    places = {path: one.since for path, one in zip(texts, deletes, strict=True) if len(one.since)}
    if places and int(iceberg.operations().current().formatVersion()) < FORMAT_WITH_POSITIONS:
        raise FilesChanged(_DELETED)
    return LateDeletes(places, tuple(file for one in deletes for file in one.own), before.rows)


def _planned(every: Any) -> _Planned:
    found, count, counted = {str(task.file().location()): task for task in each(tasks_with_deletes(every))}, 0, True
    for task in found.values():
        own = own_deletes(task)
        counted = counted and len(own) == task.deletes().size() <= 1
        count += sum(int(file.recordCount()) for file in own)
    return _Planned(found, count if counted else None)


def _since(io: Any, path: str, text: str, before: Any, now: Any) -> _FileDeletes:
    """The delete files of an old file, given the tasks that read it when the plan was made, and now."""
    own, others = _own_and_others(before)
    own_now, others_now = _own_and_others(now)
    if others != others_now:
        raise FilesChanged(_DELETED)
    since: list[int] = []
    if _paths(own) != _paths(own_now):
        then, positions = set(deleted_positions(io, own, path)), deleted_positions(io, own_now, path)
        if not then <= set(positions):
            raise FilesChanged(_RESTORED)
        since = [position for position in positions if position not in then]
    return _FileDeletes(text, tuple(own_now), pa.array(since, pa.int64()))


def _own_and_others(task: Any) -> tuple[list[Any], set[str]]:
    """The delete files of a task that apply to its file alone, and the locations of the others."""
    if task is None:
        return [], set()
    own = own_deletes(task)
    return own, _paths(each(task.deletes())) - _paths(own)


def carried_over(
    session: SparkSession, planned: Any, snapshot_id: int, late: LateDeletes, new: Any, search: DeleteSearch
) -> WrittenDeletes:
    """Write delete files for the rows of merged files, a Java set, that were deleted since. Raises FilesChanged if they
    are not all there."""
    files = {str(file.location()): file for file in each(new)}
    found = moved_places(session, planned, snapshot_id, late, files, search)
    specs = planned.specs()
    targets = [DeleteTarget(path, files[path], specs.get(files[path].specId()), at) for path, at in found.items()]
    return write_delete_files(planned, targets)


def moved_places(
    session: SparkSession,
    planned: Any,
    snapshot_id: int,
    late: LateDeletes,
    files: Mapping[str, Any],
    search: DeleteSearch,
) -> Mapping[str, pa.Array]:
    """Where the rows that were deleted since are in merged files. Raises FilesChanged if they are not all there."""
    found = search.moved.find(late.places, {path: int(file.recordCount()) for path, file in files.items()})
    if found is None:
        rows = SnapshotFiles(snapshot_id, frozenset(), late.places)
        found = _places(session, planned, rows, files.values(), search.schema)
        if _count(found) == _count(late.places):
            search.moved.keep(late.places, found)
    if _count(found) != _count(late.places):
        raise FilesChanged("rows that were deleted in the meantime are not in the merged files")
    return found


def _count(places: Mapping[str, pa.Array]) -> int:
    return sum(len(positions) for positions in places.values())


def _places(
    session: SparkSession, planned: Any, rows: SnapshotFiles, files: Iterable[Any], schema: TableSchema
) -> dict[str, pa.Array]:
    """The places, in new files, of rows with the same contents."""
    columns = ", ".join(identifier(name) for name in schema.names)

    def content(alias: str) -> str:
        return ", ".join(comparable(field.type, f"{alias}.{identifier(field.name)}") for field in schema.fields)

    kinds = [(field.type, identifier(field.name)) for field in schema.fields]
    equal = " AND ".join(same(kind, f"_firn_h.{name}", f"_firn_g.{name}") for kind, name in kinds)
    first = ", ".join(f"first(_firn_r.{identifier(name)}) AS {identifier(name)}" for name in schema.names)
    with ExitStack() as stack:
        gone = stack.enter_context(readable_files(session, planned, rows))
        merged = stack.enter_context(readable(planned, _tasks_of(planned, files)))
        wanted = f"SELECT {first}, count(*) AS {_N} FROM {gone} AS _firn_r GROUP BY {content('_firn_r')}"
        placed = f"SELECT {columns}, _file AS {_FILE}, _pos AS {_POS} FROM {merged}"
        number = f"row_number() OVER (PARTITION BY {content('_firn_h')} ORDER BY _firn_h.{_FILE}, _firn_h.{_POS})"
        joined = (
            f"SELECT /*+ BROADCAST(_firn_g) */ _firn_h.{_FILE} AS file, _firn_h.{_POS} AS pos, _firn_g.{_N} AS n, "
            f"{number} AS k FROM ({placed}) AS _firn_h JOIN ({wanted}) AS _firn_g ON {equal}"
        )
        found = collect(session.sql(f"SELECT file, pos FROM ({joined}) WHERE k <= n"))
    places: dict[str, list[int]] = {}
    for file, position in zip(found["file"].to_pylist(), found["pos"].to_pylist(), strict=True):
        places.setdefault(file, []).append(position)
    return {file: pa.array(some, pa.int64()) for file, some in places.items()}


def _tasks_of(iceberg: Any, files: Iterable[Any]) -> Any:
    """A Java list of the tasks that read whole files, which no snapshot has yet."""
    schema = iceberg_class("SchemaParser").toJson(iceberg.schema())
    found = java_class("java.util.ArrayList")()
    no_deletes = array("org.apache.iceberg.DeleteFile")
    every = iceberg_class("expressions.ResidualEvaluator").unpartitioned(
        iceberg_class("expressions.Expressions").alwaysTrue()
    )
    for file in files:
        spec = iceberg_class("PartitionSpecParser").toJson(iceberg.specs().get(file.specId()))
        found.add(iceberg_class("BaseFileScanTask")(file, no_deletes, schema, spec, every))
    return found


def _paths(files: Iterable[Any]) -> set[str]:
    return {str(file.location()) for file in files}
