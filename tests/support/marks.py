"""Which of many variants `make test` runs; `make test-all` runs every one."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def thorough_except(kept: Container[Any], variants: Iterable[Any]) -> list[Any]:
    """Parameters of a test of which `make test` runs only those that are kept."""
    return [one if one in kept else _thorough(one) for one in variants]


def thorough_after(count: int, variants: Iterable[Any]) -> list[Any]:
    """Parameters of a test of which `make test` runs only the first."""
    return [one if i < count else _thorough(one) for i, one in enumerate(variants)]


def _thorough(one: Any) -> Any:
    values = one if isinstance(one, tuple) else (one,)
    return pytest.param(*values, marks=pytest.mark.thorough)
