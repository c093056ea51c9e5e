"""Whether a SELECT returns the same rows each time it reads the same snapshots, by the JSON of Spark's plan of it.

Spark itself says whether a plan depends on chance. It does not count what depends on the clock, or on the order in
which rows come from several tasks: limits, ties in windows, the first of some values, and how sums are rounded.
"""

import json
from typing import Any

from service.guard.functions import split_words

_UNSTABLE = split_words(
    """
    Collate GlobalLimit LocalLimit LocalTimestamp Now Offset RandStr Sample Shuffle Tail Uniform Uuid Window
    WindowExpression
    """
)
_CLOCK = "Current"
_NO_CLOCK = "CurrentRow$"
_EXACT = split_words(
    """
    BitAndAgg BitOrAgg BitXorAgg BoolAnd BoolOr Count CountIf HyperLogLogPlusPlus Max Median Min Percentile
    """
)
# Exact for whole numbers and decimals.
_SUMS = frozenset({"Sum", "Average"})
_FRACTIONS = frozenset({"double", "float"})


def is_repeatable(plan_json: str) -> bool:
    """Whether an analysed plan, without its outermost limits, has the same rows each time."""
    try:
        return _is_repeatable(json.loads(plan_json))
    except RecursionError:  # the plan is nested too deeply to tell
        return False


def _is_repeatable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_repeatable, value.values()))
    if not isinstance(value, list):
        return True
    return all(_is_stable(value, place) for place in range(len(value))) and all(map(_is_repeatable, value))


def _is_stable(nodes: list[Any], place: int) -> bool:
    """Whether a node, in a list of nodes in pre-order, is one of those that are the same each time."""
    name = _class(nodes[place])
    if name == "AggregateExpression":
        function = _class(nodes[place + 1])
        if function in _SUMS:
            tree = nodes[place + 1 : _end(nodes, place + 1)]
            return not any(node.get("dataType") in _FRACTIONS for node in tree)
        return function in _EXACT
    return name not in _UNSTABLE and (not name.startswith(_CLOCK) or name == _NO_CLOCK)


def _end(nodes: list[Any], place: int) -> int:
    """Where the tree of a node ends."""
    end = place + 1
    for _ in range(nodes[place]["num-children"]):
        end = _end(nodes, end)
    return end


def _class(node: Any) -> str:
    return str(node["class"]).rpartition(".")[2] if isinstance(node, dict) and "class" in node else ""
