"""Calls into the JVM: classes and errors by name, loops, and Java's own functions and streams.

A call through Py4J takes longer than the work it requests, so Java itself handles large collections. It calls method
handles: to call a Python function, the JVM would need a server in this process. Handles are looked up once for each
JVM, because that takes several calls.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, is_magic_member
from py4j.protocol import STATIC_PREFIX, Py4JJavaError

ICEBERG = "org.apache.iceberg"
_INVOKE = "java.lang.invoke"
# No path contains it.
_SEPARATOR = "\0"


def gateway() -> Any:
    """PySpark's connection to its JVM; None before the first start."""
    from pyspark import SparkContext

    return SparkContext._gateway


def java_class(name: str) -> Any:
    """A class by its full name. Py4J's own lookup goes package by package and searches every jar."""
    return _StaticMethods(name, gateway()._gateway_client)


def iceberg_class(name: str) -> Any:
    """A class of Iceberg, by its name below `org.apache.iceberg`."""
    return java_class(f"{ICEBERG}.{name}")


class _StaticMethods(JavaClass):  # type: ignore[misc]  # Py4J ships no types
    """A class whose static methods are called without looking up their names first.

    Py4J looks up the first method of that name, in an order that differs from one JVM to the next. If that method is
    not static, as sometimes with `get` of Iceberg's SparkTableCache, Py4J reports it missing until that JVM ends.
    """

    def __getattr__(self, name: str) -> Any:
        if name.isupper() or is_magic_member(name):  # possibly a constant
            return super().__getattr__(name)
        return JavaMember(name, None, STATIC_PREFIX + self._fqn, self._gateway_client)


def kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for what makes a Java object that never changes, from texts: it is made once for each JVM."""

    @wraps(make)
    def found(*parts: str) -> Any:
        return _shared((make.__module__, make.__qualname__, *parts), lambda: make(*parts))

    return found


def _shared(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """An object that never changes, made once for each JVM. There are only so many keys."""
    objects = gateway().__dict__.setdefault("_firn_shared", {})
    found = objects.get(key)
    if found is None:
        found = objects[key] = make()
        found.__dict__["_firn_key"] = key
    return found


def _made_of(what: str, parts: Iterable[Any], make: Callable[[], Any]) -> Any:
    """What is made of other objects: shared if they are."""
    keys = [part.__dict__.get("_firn_key") for part in parts]
    return make() if None in keys else _shared((what, *keys), make)


@kept
def reflected(name: str) -> Any:
    """The `java.lang.Class` of a class."""
    return java_class("java.lang.Class").forName(name)


def is_a(error: Py4JJavaError, name: str) -> bool:
    """Whether the JVM threw an exception of this class."""
    return bool(reflected(name).isInstance(error.java_exception))


def each(items: Any) -> Iterator[Any]:
    """The items of a Java collection. Py4J's own loop ends with an exception, which takes longer than a commit."""
    iterator = items.iterator()
    while iterator.hasNext():
        yield iterator.next()


def scala_items(items: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [items.apply(i) for i in range(items.size())]


def array(kind: str, items: Iterable[Any] = ()) -> Any:
    """A Java array of a class."""
    items = list(items)
    made = gateway().new_array(java_class(kind), len(items))
    for i, item in enumerate(items):
        made[i] = item
    return made


def all_threads() -> Any:
    """All threads of the JVM, in an array that ends with nulls. `Thread.getAllStackTraces` would stop all of them."""
    group = java_class("java.lang.Thread").currentThread().getThreadGroup()
    while (above := group.getParent()) is not None:
        group = above
    threads = gateway().new_array(java_class("java.lang.Thread"), 2 * int(group.activeCount()) + 50)
    group.enumerate(threads)
    return threads


def string_list(values: Iterable[str]) -> Any:
    """A Java list of strings, in few calls however many they are. None contains a NUL character."""
    pattern = java_class("java.util.regex.Pattern").compile(_SEPARATOR)
    return collected(pattern.splitAsStream(_SEPARATOR.join(values)))


def strings(items: Any) -> list[str]:
    """The strings of a Java collection, in one call."""
    if items.isEmpty():
        return []
    return str(java_class("java.lang.String").join(_SEPARATOR, items)).split(_SEPARATOR)


def collected(stream: Any) -> Any:
    """A Java list of the items of a stream."""
    return stream.collect(_to_list())


@kept
def _to_list() -> Any:
    return java_class("java.util.stream.Collectors").toList()


def texts(items: Any) -> dict[str, str]:
    """A Java map of texts, in one call."""
    found: dict[str, str] = json.loads(str(json_mapper().writeValueAsString(items)))
    return found


@kept
def json_mapper() -> Any:
    """Java's JSON, to pass a collection in one call."""
    return java_class("com.fasterxml.jackson.databind.ObjectMapper")()


def mapped(items: Any, *steps: Any) -> Any:
    """A stream of the values that method handles, applied in order, return for each item of a Java list."""
    stream = items.stream()
    for step in steps:
        stream = stream.map(function(step))
    return stream


def lines(items: Any, *steps: Any) -> list[str]:
    """The values that the steps return for each item of a Java list, as text, in order."""
    return strings(collected(mapped(items, *steps, method("java.lang.Object", "toString"))))


def total(items: Any, *steps: Any) -> int:
    """The sum of the whole numbers that the steps return for the items of a Java list."""
    return int(mapped(items, *steps[:-1]).mapToLong(function(steps[-1], "ToLongFunction")).sum())


@kept
def method(owner: str, name: str, *parameters: str) -> Any:
    """A method handle: a class's public method, by its name and the classes of its parameters."""
    found = reflected(owner).getMethod(name, _classes(parameters))
    return java_class(f"{_INVOKE}.MethodHandles").publicLookup().unreflect(found)


def then(first: Any, second: Any) -> Any:
    """The method handle `second(first(x))`."""

    def make() -> Any:
        fitting = second.asType(second.type().changeParameterType(0, first.type().returnType()))
        return java_class(f"{_INVOKE}.MethodHandles").filterReturnValue(first, fitting)

    return _made_of("then", (first, second), make)


def function(handle: Any, interface: str = "Function") -> Any:
    """A method handle as one of the interfaces of `java.util.function`."""

    def make() -> Any:
        proxies = java_class(f"{_INVOKE}.MethodHandleProxies")
        return proxies.asInterfaceInstance(reflected(f"java.util.function.{interface}"), handle)

    return _made_of(interface, (handle,), make)


def call_hidden(owner: str, name: str, target: Any, *arguments: tuple[str, Any]) -> Any:
    """Call a method that is not public; each argument comes with the class of its parameter."""
    found = _hidden_method(owner, name, *(kind for kind, _ in arguments))
    return found.invoke(target, array("java.lang.Object", (value for _, value in arguments)))


@kept
def _hidden_method(owner: str, name: str, *parameters: str) -> Any:
    found = reflected(owner).getDeclaredMethod(name, _classes(parameters))
    found.setAccessible(True)
    return found


def construct_hidden(name: str, *arguments: Any) -> Any:
    """A new object of a class that is not public, by its only constructor with that number of parameters."""
    return _hidden_constructor(name, str(len(arguments))).newInstance(array("java.lang.Object", arguments))


@kept
def _hidden_constructor(name: str, parameters: str) -> Any:
    found = reflected(name).getDeclaredConstructors()
    [constructor] = [one for one in found if one.getParameterCount() == int(parameters)]
    constructor.setAccessible(True)
    return constructor


def _classes(names: Iterable[str]) -> Any:
    return array("java.lang.Class", (_class(name) for name in names))


def _class(name: str) -> Any:
    return java_class("java.lang.Long").TYPE if name == "long" else reflected(name)
