"""How much memory aggregates take: those that keep all values, and those whose arguments say how exact they are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from service.guard.costs.bounds import Bound, array
from service.guard.costs.limits import MB, QueryLimits, shown, shown_bytes, sql_name, too_expensive
from service.guard.functions import split_words
from service.guard.nodes import Node

# These keep every value, or how often each occurs, until the last row.
COLLECTED = split_words("CollectList CollectSet ListAgg Percentile PercentileCont PercentileDisc Median Mode")
COUNTS = split_words("Count CountIf HyperLogLogPlusPlus RegrCount")
_MOST_BUFFER = 4.0 * MB


def result(node: Node, args: Sequence[Bound], limits: QueryLimits, rows: float, grouped: bool) -> Bound:
    """The bound of a value collected from so many rows. Groups may share them, of unknown sizes."""
    one = sum(max(a.size, 8.0) for a in args)
    total = rows * one
    most = limits.value_bytes * (8 if grouped else 1)
    if total > most:
        raise too_expensive(
            f"{sql_name(node.name)} may collect {shown(rows)} values, {shown_bytes(total)}",
            f"{shown_bytes(most)} are allowed (queries.max_value_mb)",
            "Collect from fewer rows, or count instead",
        )
    size = total if not grouped else math.sqrt(rows) * one
    if node.name == "ListAgg":
        return Bound(size)
    if node.name.startswith("Collect"):
        return array(args[0], size / one, size)
    return replace(args[0], text=None)


def _registers(node: Node, args: Sequence[Bound]) -> float:
    error = abs(float(node.fields.get("relativeSD") or 0.05))
    return (1.106 / error) ** 2 if error else math.inf


def _count_min(node: Node, args: Sequence[Bound]) -> float:
    error, confidence = args[1].low, args[2].low
    if not (error > 0 and 0 < confidence < 1):
        return 0.0  # Spark refuses it
    return 2 / error * -math.log2(1 - confidence) * 8


def _accuracy(node: Node, args: Sequence[Bound]) -> float:
    return args[2].high if len(args) > 2 else 0.0


def _bins(node: Node, args: Sequence[Bound]) -> float:
    return args[1].high * 100


def _items(node: Node, args: Sequence[Bound]) -> float:
    return max([a.high for a in args[1:] if a.known], default=0.0) * 64


def _logarithm(node: Node, args: Sequence[Bound]) -> float:
    return 2.0 ** min(args[1].high, 100) * 8 if len(args) > 1 and args[1].known else 0.0


_BUFFERS: dict[str, Callable[[Node, Sequence[Bound]], float]] = {
    "HyperLogLogPlusPlus": _registers,
    "CountMinSketchAgg": _count_min,
    "ApproximatePercentile": _accuracy,
    "HistogramNumeric": _bins,
    "ApproxTopK": _items,
    "ApproxTopKAccumulate": _items,
    "ApproxTopKCombine": _items,
    "ThetaSketchAgg": _logarithm,
}


def check_sketch(node: Node, args: Sequence[Bound]) -> None:
    """Raise QueryTooExpensive if an approximation is asked to be so exact that it takes much memory."""
    buffer = _BUFFERS.get(node.name)
    size = buffer(node, args) if buffer else 0.0
    if size > _MOST_BUFFER:
        raise too_expensive(
            f"{sql_name(node.name)} needs {shown_bytes(size)} for each group to be as exact as asked",
            f"{shown_bytes(_MOST_BUFFER)} are allowed",
            "Ask for a larger error or a smaller accuracy",
        )
