"""Medians and other percentiles. Pure."""

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them (0 to 1) does not exceed, between neighbours where it falls between two."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it can be 0 to 1")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)
