"""Every plan in a plan of Spark."""

from collections.abc import Iterator
from typing import Any

from service.engine.session.java import java_class, scala_items


def every_plan(plan: Any) -> Iterator[Any]:
    """A plan and every plan inside it, each once: its children, its WITH clauses and its expressions' subqueries."""
    system = java_class("java.lang.System")
    seen: set[int] = set()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        identity = system.identityHashCode(node)
        if identity not in seen:
            seen.add(identity)
            yield node
            for inside in (node.children(), node.innerChildren(), node.subqueries()):
                waiting += scala_items(inside)
