"""Deletes rows by their places: writes delete files, one for each data file, that no snapshot has yet.

A data file has at most one delete file of ours. A later one also has the positions of the earlier one, and replaces it:
so readers open one delete file for a data file, however many edits there were, and a delete file that a commit added,
less the one that it removed, is exactly what the commit deleted.
"""

import uuid as uuids
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.engine.iceberg.scan_tasks import by_location, file_of_task, of_file, tasks
from service.engine.session.java import (
    ICEBERG,
    collected,
    construct_hidden,
    each,
    function,
    iceberg_class,
    java_class,
    lines,
    method,
    then,
)
from service.model.properties import FORMAT_WITH_VECTORS

# How many positions are sent to the JVM in one call.
_AT_ONCE = 500_000
# To send so many takes fewer calls one by one.
_FEW = 6
_INDEX = f"{ICEBERG}.deletes.BitmapPositionDeleteIndex"

Places = Mapping[str, pa.Array]
"""Rows by their places: for each data file, the positions of rows in it, each once."""


@dataclass(frozen=True)
class WrittenDeletes:
    """Delete files that belong to no snapshot yet, and those that they replace."""

    io: Any
    files: tuple[Any, ...] = ()
    replaced: tuple[Any, ...] = ()
    rows: int = 0
    """How many rows they delete that were not deleted before."""

    def discard(self) -> None:
        """Delete the files; only if it is certain that no snapshot has them."""
        for file in self.files:
            self.io.deleteFile(str(file.location()))


@dataclass(frozen=True)
class DeleteTarget:
    """A data file to delete rows of, and the delete files of its own that are replaced."""

    path: str
    file: Any
    spec: Any
    positions: pa.Array
    earlier: tuple[Any, ...] = ()
    shared: tuple[Any, ...] = ()
    """Delete files with positions that apply to other data files, too."""


def write_deletes(iceberg: Any, read: Any, places: Places) -> WrittenDeletes:
    """Write delete files for rows of a snapshot, whose files some tasks read; the places are those of rows that it
    has."""
    found = by_location(read)
    targets = []
    for path, positions in places.items():
        task = found.get(path)
        own: list[Any] = []
        shared: list[Any] = []
        for file in filter(_has_positions, each(task.deletes())):
            (own if _is_own(file) else shared).append(file)
        targets.append(DeleteTarget(path, task.file(), task.spec(), positions, tuple(own), tuple(shared)))
    return write_delete_files(iceberg, targets)


def write_delete_files(iceberg: Any, targets: Iterable[DeleteTarget]) -> WrittenDeletes:
    """Write a delete file for each data file, with the positions of the delete files that it replaces: a deletion
    vector if the table's format has these, or else a Parquet file."""
    has_vectors = int(iceberg.operations().current().formatVersion()) >= FORMAT_WITH_VECTORS
    write = _vector_writer(iceberg) if has_vectors else _parquet_writer(iceberg)
    written: list[Any] = []
    replaced: list[Any] = []
    rows, io = 0, iceberg.io()
    try:
        for target in targets:
            # Readers of a data file that has a vector ignore its other delete files.
            index = _index(io, [*target.earlier, *(target.shared if has_vectors else ())], target.path)
            before = int(index.cardinality())
            _add(index, target.positions)
            rows += int(index.cardinality()) - before
            written.append(write(target, index))
            replaced += target.earlier
    except BaseException:
        WrittenDeletes(io, tuple(written)).discard()
        raise
    return WrittenDeletes(io, tuple(written), tuple(replaced), rows)


def _parquet_writer(iceberg: Any) -> Callable[[DeleteTarget, Any], Any]:
    """A function that writes the positions of an index, and returns the delete file."""
    parquet = iceberg_class("FileFormat").fromString("parquet")
    writers = iceberg_class("data.GenericFileWriterFactory$Builder")(iceberg).deleteFileFormat(parquet).build()
    outputs = _outputs(iceberg, parquet)

    def write(target: DeleteTarget, index: Any) -> Any:
        partition = target.file.partition()
        # Without partitions, Iceberg would put an empty folder name into the path, which PyArrow refuses in S3.
        partitioned = target.spec.isPartitioned()
        output = outputs.newOutputFile(target.spec, partition) if partitioned else outputs.newOutputFile()
        return _written(writers.newPositionDeleteWriter(output, target.spec, partition), target, index)

    return write


def _vector_writer(iceberg: Any) -> Callable[[DeleteTarget, Any], Any]:
    """The same for deletion vectors: each in a file of its own, as delete files are."""
    outputs = _outputs(iceberg, iceberg_class("FileFormat").fromString("puffin"))
    nothing = java_class("java.util.Collections").emptyMap()
    no_earlier = function(method("java.util.Map", "get", "java.lang.Object").bindTo(nothing))

    def write(target: DeleteTarget, index: Any) -> Any:
        writer = iceberg_class("deletes.BaseDVFileWriter")(outputs, no_earlier)
        try:
            writer.delete(target.path, index, target.spec, target.file.partition())
        finally:
            writer.close()
        return writer.result().deleteFiles().get(0)

    return write


def _outputs(iceberg: Any, file_format: Any) -> Any:
    """Iceberg's factory for the places of new delete files."""
    outputs = iceberg_class("io.OutputFileFactory").builderFor(iceberg, 0, 0).format(file_format)
    return outputs.operationId(str(uuids.uuid4())).suffix("deletes").build()


def own_deletes(task: Any) -> list[Any]:
    """The delete files of a scan task that apply to its data file only."""
    return [file for file in each(task.deletes()) if _has_positions(file) and _is_own(file)]


def void_deletes(found: Any) -> Any:
    """The delete files that apply only to the files of a Java list of tasks, as Iceberg's set."""
    own = [file for task in each(tasks_with_deletes(found)) for file in own_deletes(task)]
    return iceberg_class("util.DeleteFileSet").of(own)


def tasks_with_deletes(found: Any) -> Any:
    """The tasks of a Java list that have delete files, as a Java list."""
    is_empty = then(method(f"{ICEBERG}.FileScanTask", "deletes"), method("java.util.List", "isEmpty"))
    return collected(found.stream().filter(function(is_empty, "Predicate").negate()))


def dangling_deletes(iceberg: Any, snapshot_id: int) -> list[Any]:
    """The delete files of a snapshot that apply to one data file only, which it does not have."""
    io, referenced = iceberg.io(), iceberg_class("util.ContentFileUtil").referencedDataFileLocation
    found: list[Any] = []
    for manifest in each(iceberg.snapshot(snapshot_id).deleteManifests(io)):
        reader = iceberg_class("ManifestFiles").readDeleteManifest(manifest, io, iceberg.specs())
        try:
            found += [file for file in each(reader) if _has_positions(file)]
        finally:
            reader.close()
    of = [(file, referenced(file)) for file in found]
    named = {str(path) for _, path in of if path is not None}
    there = set(lines(tasks(iceberg, snapshot_id, named), file_of_task(), of_file("location")))
    return [file for file, path in of if path is not None and str(path) not in there]


def deleted_positions(io: Any, deletes: Iterable[Any], path: str) -> list[int]:
    """The positions that delete files have for a data file, in increasing order."""
    index = _index(io, list(deletes), path)
    joiner = java_class("java.util.StringJoiner")(",")
    add = method("java.util.StringJoiner", "add", "java.lang.CharSequence").bindTo(joiner)
    text = then(method("java.lang.Long", "toString", "long"), add)
    index.forEach(function(text, "LongConsumer"))
    found = str(joiner.toString())
    return [int(position) for position in found.split(",")] if found else []


def _is_own(file: Any) -> bool:
    """Whether a delete file applies to one data file only."""
    return bool(iceberg_class("util.ContentFileUtil").isFileScoped(file))


def _has_positions(file: Any) -> bool:
    return str(file.content().name()) == "POSITION_DELETES"


def _index(io: Any, deletes: list[Any], path: str) -> Any:
    """The positions that delete files have for a data file."""
    index = construct_hidden(_INDEX)
    if deletes:
        opened = function(method(f"{ICEBERG}.io.FileIO", "newInputFile", f"{ICEBERG}.DeleteFile").bindTo(io))
        index.merge(iceberg_class("data.BaseDeleteLoader")(opened).loadPositionDeletes(deletes, path))
    return index


def _add(index: Any, positions: pa.Array) -> None:
    """Add positions to an index: as text, because Py4J makes a call for each item of an array."""
    if len(positions) <= _FEW:
        for position in positions.to_pylist():
            index.delete(position)
        return
    delete = function(method(f"{ICEBERG}.deletes.PositionDeleteIndex", "delete", "long").bindTo(index), "LongConsumer")
    parse = function(method("java.lang.Long", "parseLong", "java.lang.String"), "ToLongFunction")
    comma = java_class("java.util.regex.Pattern").compile(",")
    for start in range(0, len(positions), _AT_ONCE):
        text = ",".join(map(str, positions.slice(start, _AT_ONCE).to_pylist()))
        comma.splitAsStream(text).mapToLong(parse).forEach(delete)


def _written(writer: Any, target: DeleteTarget, index: Any) -> Any:
    """The delete file of a writer, with all positions of an index.

    The loop over the positions is Iceberg's own: it takes the index for positions that were deleted before, to be
    written with one more. Calls from here for each position take longer than the rest of the commit.
    """
    positions = method("java.util.Map", "get", "java.lang.Object")
    positions = positions.bindTo(java_class("java.util.Collections").singletonMap(target.path, index))
    same = method("java.util.Optional", "get").bindTo(java_class("java.util.Optional").of(writer))
    by_file = iceberg_class("deletes.DeleteGranularity").FILE
    sorting = iceberg_class("deletes.SortingPositionOnlyDeleteWriter")(
        function(same, "Supplier"), by_file, function(positions)
    )
    try:
        one = iceberg_class("deletes.PositionDelete").create().set(target.path, target.positions[0].as_py())
        sorting.write(one)
    finally:
        sorting.close()
    return sorting.result().deleteFiles().get(0)
