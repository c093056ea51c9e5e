"""The tasks that read some files of a snapshot. They stay in the JVM, because there may be many."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.engine.iceberg.tables import same_thread
from service.engine.session.java import (
    ICEBERG,
    collected,
    each,
    function,
    iceberg_class,
    java_class,
    kept,
    method,
    string_list,
    then,
)

# So few tasks are looked at one by one: making a function for Java's streams takes longer.
_FEW = 4


@dataclass(frozen=True)
class SnapshotFiles:
    """Data files, and a snapshot that has them."""

    snapshot_id: int
    paths: frozenset[str]
    places: Mapping[str, pa.Array] = field(default_factory=dict)
    """More rows of the snapshot, by their places in other files."""

    @property
    def touched(self) -> frozenset[str]:
        """All files that some of the rows are in."""
        return self.paths | self.places.keys()


NO_FILES = SnapshotFiles(0, frozenset())


def tasks(iceberg: Any, snapshot_id: int, paths: Iterable[str] | None = None) -> Any:
    """A Java list of the tasks that read these files of a snapshot, or all its files; one task reads a whole file."""
    scan = iceberg.newScan().useSnapshot(snapshot_id)
    if paths is not None and str(iceberg.location()).startswith("file:"):
        # With a pool, Iceberg polls every 10 ms, which takes longer than reading local manifests.
        scan = scan.planWith(same_thread())
    planned = scan.planFiles()
    try:
        found = iceberg_class("relocated.com.google.common.collect.Lists").newArrayList(planned.iterator())
    finally:
        planned.close()
    return found if paths is None else of_files(found, paths)


def of_files(tasks: Any, paths: Iterable[str]) -> Any:
    """Those of a Java list of tasks that read some files, as a Java list."""
    if tasks.size() <= _FEW:
        found, names = java_class("java.util.ArrayList")(), set(paths)
        for task in each(tasks):
            if str(task.file().location()) in names:
                found.add(task)
        return found
    wanted = java_class("java.util.HashSet")(string_list(paths))
    is_wanted = method("java.util.Set", "contains", "java.lang.Object").bindTo(wanted)
    return collected(tasks.stream().filter(function(then(_location(), is_wanted), "Predicate")))


def by_location(tasks: Any) -> Any:
    """A Java map from the location of each task's file to the task."""
    identity = java_class("java.util.function.Function").identity()
    return tasks.stream().collect(java_class("java.util.stream.Collectors").toMap(function(_location()), identity))


def files_of(tasks: Any) -> Any:
    """The data files that a Java list of tasks reads, as Iceberg's set."""
    return iceberg_class("util.DataFileSet").of(collected(tasks.stream().map(_file_function())))


def file_of_task() -> Any:
    """The method handle of a task's file."""
    return method(f"{ICEBERG}.ContentScanTask", "file")


def of_file(name: str) -> Any:
    """The method handle of a property of a file: `location`, `recordCount`, `fileSizeInBytes`."""
    return method(f"{ICEBERG}.ContentFile", name)


@kept
def _file_function() -> Any:
    return function(file_of_task())


@kept
def _location() -> Any:
    return then(file_of_task(), of_file("location"))
