"""Deletes that arrive while files are merged: carried over to the merged files, in the commit of the merge.

A delete file names positions in an old file, which the merged files do not have. So the deleted rows are looked up in
these by their contents: of equal rows, it does not matter which are deleted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.engine.iceberg.position_deletes import (
    DeleteTarget,
    WrittenDeletes,
    deleted_positions,
    own_deletes,
    write_delete_files,
)
from service.engine.iceberg.scan_tasks import SnapshotFiles, by_location, tasks
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
FindMoved = Callable[[Mapping[str, pa.Array], Mapping[str, int]], Mapping[str, pa.Array] | None]
"""Finds, without Spark, the rows at some places among those of merged files, which have these numbers of rows; None if
that is better left to Spark."""


@dataclass(frozen=True)
class LateDeletes:
    """What was deleted, since a snapshot, from files that are merged."""

    places: Mapping[str, pa.Array]
    """The rows that were deleted since, by their places in the old files."""
    void: tuple[Any, ...]
    """All delete files that apply to the old files alone."""
    planned: int | None
    """How many rows were deleted before; None if only reading them shows that."""


def late_deletes(iceberg: Any, planned: Any, snapshot_id: int, old: Sequence[str]) -> LateDeletes:
    """What was deleted from old files since a snapshot of `planned`, the table as it was then.

    Raises FilesChanged if an old file is no longer there, or has new deletes that may apply to other files too.
    """
    before = tasks(planned, snapshot_id, old)
    now = by_location(tasks(iceberg, int(iceberg.currentSnapshot().snapshotId()), old))
    if int(now.size()) != len(old):
        raise FilesChanged("another writer removed files that were to be merged")
    places, void, counted, count = dict[str, pa.Array](), [], True, 0
    for task in each(before):
        path = str(task.file().location())
        task_now = now.get(path)
        if task.deletes().isEmpty() and task_now.deletes().isEmpty():
            continue
        own, own_now = own_deletes(task), own_deletes(task_now)
        counted = counted and len(own) == task.deletes().size() <= 1
        count += sum(int(file.recordCount()) for file in own)
        if _others(task, own) != _others(task_now, own_now):
            raise FilesChanged("another writer deleted rows of files that were to be merged")
        void += own_now
        if _paths(own) != _paths(own_now):
            io = iceberg.io()
            then = set(deleted_positions(io, own, path))
            since = [place for place in deleted_positions(io, own_now, path) if place not in then]
            if since:
                places[path] = pa.array(since, pa.int64())
    if places and int(iceberg.operations().current().formatVersion()) < FORMAT_WITH_POSITIONS:
        raise FilesChanged("another writer deleted rows of files that were to be merged")
    return LateDeletes(places, tuple(void), count if counted else None)


def carried_over(
    session: SparkSession,
    planned: Any,
    snapshot_id: int,
    late: LateDeletes,
    new: Iterable[Any],
    schema: TableSchema,
    find: FindMoved,
) -> WrittenDeletes:
    """Write delete files for the rows of merged files that were deleted since. Raises FilesChanged if they are not all
    there."""
    files = {str(file.location()): file for file in new}
    found = find(late.places, rows_by_path(files.values()))
    if found is None:
        found = _places(session, planned, SnapshotFiles(snapshot_id, frozenset(), late.places), files.values(), schema)
    expected = sum(len(positions) for positions in late.places.values())
    if sum(len(positions) for positions in found.values()) != expected:
        raise FilesChanged("rows that were deleted in the meantime are not in the merged files")
    specs = planned.specs()
    targets = [DeleteTarget(path, files[path], specs.get(files[path].specId()), at) for path, at in found.items()]
    return write_delete_files(planned, targets)


def rows_by_path(files: Iterable[Any]) -> dict[str, int]:
    """The numbers of rows of data files."""
    return {str(file.location()): int(file.recordCount()) for file in files}


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


def _others(task: Any, own: Sequence[Any]) -> set[str]:
    """The delete files of a task that may apply to other files too."""
    return _paths(each(task.deletes())) - _paths(own)


def _paths(files: Iterable[Any]) -> set[str]:
    return {str(file.location()) for file in files}
