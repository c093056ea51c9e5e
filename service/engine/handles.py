"""Java's own streams over many objects, so that none of them comes over Py4J."""

from typing import Any

from pyspark import SparkContext

from service.engine.jvm import java_class

_HANDLES = "java.lang.invoke.MethodHandles"
_FUNCTION = "java.util.function.Function"


def method(of: str, name: str, *parameters: str) -> Any:
    """A handle of a class's method, by its name and the classes of its parameters."""
    find = java_class("java.lang.Class").forName
    gateway: Any = SparkContext._gateway
    given = gateway.new_array(java_class("java.lang.Class"), len(parameters))
    for i, parameter in enumerate(parameters):
        given[i] = find(parameter)
    return java_class(_HANDLES).publicLookup().unreflect(find(of).getMethod(name, given))


def then(first: Any, second: Any) -> Any:
    """Both, one after the other: `second(first(x))`."""
    return java_class(_HANDLES).filterReturnValue(_of_any(first), _of_any(second))


def function(handle: Any) -> Any:
    return _as_a(_FUNCTION, handle, "java.lang.Object")


def predicate(handle: Any) -> Any:
    return _as_a("java.util.function.Predicate", handle, "boolean")


def lines(items: Any, *steps: Any) -> list[str]:
    """What the steps make of each of a Java list's items, as text without line breaks; in their order."""
    stream = items.stream()
    for step in (*steps, method("java.lang.Object", "toString")):
        stream = stream.map(function(step))
    text = str(stream.collect(java_class("java.util.stream.Collectors").joining("\n")))
    return text.split("\n") if text else []


def total(items: Any, *steps: Any) -> int:
    """The sum of the whole numbers that the steps make of a Java list's items."""
    stream = items.stream()
    for step in steps[:-1]:
        stream = stream.map(function(step))
    return int(stream.mapToLong(_as_a("java.util.function.ToLongFunction", steps[-1], "long")).sum())


def _of_any(handle: Any, returns: str = "java.lang.Object") -> Any:
    """The same method, of anything; what is not of its class fails when it is called."""
    find = java_class("java.lang.Class").forName
    boxes = {"boolean": "java.lang.Boolean", "long": "java.lang.Long"}
    kind = java_class(boxes[returns]).TYPE if returns in boxes else find(returns)
    return handle.asType(java_class("java.lang.invoke.MethodType").methodType(kind, find("java.lang.Object")))


def _as_a(interface: str, handle: Any, returns: str) -> Any:
    proxies = java_class("java.lang.invoke.MethodHandleProxies")
    return proxies.asInterfaceInstance(java_class("java.lang.Class").forName(interface), _of_any(handle, returns))
