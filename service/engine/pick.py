"""The tasks that read some files of a snapshot: found in the JVM, however many files there are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.engine.bulk_calls import texts
from service.engine.jvm import java_class

_ICEBERG = "org.apache.iceberg"
_HANDLES = "java.lang.invoke.MethodHandles"


@dataclass(frozen=True)
class Files:
    """Data files, as a snapshot that holds them has them."""

    snapshot_id: int
    paths: frozenset[str]


NO_FILES = Files(0, frozenset())


def tasks(iceberg: Any, snapshot_id: int, paths: Iterable[str] | None = None) -> Any:
    """A Java list of the tasks that read these files whole, or all files of the snapshot."""
    planned = iceberg.newScan().useSnapshot(snapshot_id).planFiles()
    try:
        lists = java_class(f"{_ICEBERG}.relocated.com.google.common.collect.Lists")
        every = lists.newArrayList(planned.iterator())
    finally:
        planned.close()
    return every if paths is None else _collected(every.stream().filter(_among(paths)))


def files_of(read: Any) -> Any:
    """The data files that tasks read, as a set of Iceberg's."""
    read = read.stream().map(_as_a("java.util.function.Function", _file(), "java.lang.Object"))
    return java_class(f"{_ICEBERG}.util.DataFileSet").of(_collected(read))


def no_deletes() -> Any:
    """No delete files, as a set of Iceberg's."""
    return java_class(f"{_ICEBERG}.util.DeleteFileSet").create()


def _among(paths: Iterable[str]) -> Any:
    """A predicate of Java's, so that no task comes over Py4J: `paths.contains(task.file().location())`."""
    wanted = java_class("java.util.HashSet")(texts(paths))
    contains = _method("java.util.Set", "contains", 1).bindTo(wanted)
    location = _method(f"{_ICEBERG}.ContentFile", "location")
    path = java_class(_HANDLES).filterReturnValue(_of_any(_file()), _of_any(location))
    held = java_class(_HANDLES).filterReturnValue(path, contains)
    return _as_a("java.util.function.Predicate", held, "boolean")


def _file() -> Any:
    return _method(f"{_ICEBERG}.ContentScanTask", "file")


def _collected(stream: Any) -> Any:
    return stream.collect(java_class("java.util.stream.Collectors").toList())


def _method(of: str, name: str, parameters: int = 0) -> Any:
    methods = java_class("java.lang.Class").forName(of).getMethods()
    [found, *_] = [m for m in methods if m.getName() == name and m.getParameterCount() == parameters]
    return java_class(_HANDLES).publicLookup().unreflect(found)


def _of_any(handle: Any, returns: str = "java.lang.Object") -> Any:
    """The same method, of anything; what is not of its class fails when it is called."""
    find = java_class("java.lang.Class").forName
    kind = java_class("java.lang.Boolean").TYPE if returns == "boolean" else find(returns)
    return handle.asType(java_class("java.lang.invoke.MethodType").methodType(kind, find("java.lang.Object")))


def _as_a(interface: str, handle: Any, returns: str) -> Any:
    proxies = java_class("java.lang.invoke.MethodHandleProxies")
    return proxies.asInterfaceInstance(java_class("java.lang.Class").forName(interface), _of_any(handle, returns))
