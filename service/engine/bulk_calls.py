"""Many Java objects asked the same in one go: a call for each through Py4J takes longer than what is asked."""

from collections.abc import Iterable
from typing import Any

from service.engine.jvm import java_class

_INVOKE = "java.lang.invoke"
_STREAMS, _SPLITERATORS = "java.util.stream.StreamSupport", "java.util.Spliterators"
# No path has it.
_BETWEEN = "\0"


def by_location(tasks: Any) -> Any:
    """Scan tasks, which are closed, as a Java map of their files' locations to them."""
    function = java_class("java.util.function.Function")
    collectors = java_class("java.util.stream.Collectors")
    try:
        one_by_one = java_class(_SPLITERATORS).spliteratorUnknownSize(tasks.iterator(), 0)
        stream = java_class(_STREAMS).stream(one_by_one, False)
        return stream.collect(collectors.toMap(_asked(_FILE, _LOCATION), function.identity()))
    finally:
        tasks.close()


def files_of(tasks: Any) -> Any:
    """The data files of the scan tasks that are values of a Java map."""
    collectors = java_class("java.util.stream.Collectors")
    return _stream(tasks.entrySet()).map(_asked(_VALUE, _FILE)).collect(collectors.toList())


def total(files: Any, what: str) -> int:
    """The sum of what each of a Java collection of data files says: `recordCount`, `fileSizeInBytes`."""
    asked = _asked((_CONTENT, what, "long"), to="ToLongFunction")
    return int(_stream(files).mapToLong(asked).sum())


def texts(values: Iterable[str]) -> Any:
    """A Java list of texts."""
    split = java_class("java.util.regex.Pattern").compile(_BETWEEN).splitAsStream(_BETWEEN.join(values))
    return split.collect(java_class("java.util.stream.Collectors").toList())


_Method = tuple[str, str, str]
_CONTENT = "org.apache.iceberg.ContentFile"
_FILE: _Method = ("org.apache.iceberg.ContentScanTask", "file", _CONTENT)
_VALUE: _Method = ("java.util.Map$Entry", "getValue", "java.lang.Object")
_LOCATION: _Method = (_CONTENT, "location", "java.lang.String")


def _stream(items: Any) -> Any:
    # Py4J does not see the method that every collection has for it.
    return java_class(_STREAMS).stream(java_class(_SPLITERATORS).spliterator(items, 0), False)


def _asked(*methods: _Method, to: str = "Function") -> Any:
    """Methods without arguments, one after the other, as a Java function."""
    handles = java_class(f"{_INVOKE}.MethodHandles")
    handle = None
    for owner, name, gives in methods:
        kind = java_class(f"{_INVOKE}.MethodType").methodType(_class(gives))
        found = handles.publicLookup().findVirtual(_class(owner), name, kind)
        if handle is not None:
            found = found.asType(found.type().changeParameterType(0, handle.type().returnType()))
            found = handles.filterReturnValue(handle, found)
        handle = found
    return java_class(f"{_INVOKE}.MethodHandleProxies").asInterfaceInstance(_class(f"java.util.function.{to}"), handle)


def _class(name: str) -> Any:
    return java_class("java.lang.Long").TYPE if name == "long" else java_class("java.lang.Class").forName(name)
