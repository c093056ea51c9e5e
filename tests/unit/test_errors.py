"""The error tree: what a caller can see, and only once."""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from service import errors
from service.errors import FirnError, nearest

_BRANCH = re.compile(r"(?P<indent>[│ ]*)[├└]── (?P<name>\w+) +(?P<code>[A-Z_]+) +(?P<status>\d{3})(?P<yes> +yes)?$")


def below(kind: type[FirnError]) -> Iterator[type[FirnError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from below(child)


KINDS = list(below(FirnError))


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    parents, drawn = ["FirnError"], set()
    for line in (errors.__doc__ or "").splitlines():
        found = _BRANCH.match(line)
        if found:
            depth = len(found["indent"]) // 4 + 1
            parents[depth:] = [found["name"]]
            drawn.add((found["name"], parents[depth - 1], found["code"], int(found["status"]), bool(found["yes"])))
    assert drawn == {(k.__name__, k.__bases__[0].__name__, k.code, k.status, k.retryable) for k in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_code_is_its_class_name_in_capitals(kind: type[FirnError]) -> None:
    assert re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper() == kind.code


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_comes_of_load_may_be_tried_again_and_what_is_wrong_may_not(kind: type[FirnError]) -> None:
    """Except if the change may have happened: only the request knows whether it has an idempotency key."""
    of_load = kind.status in (408, 429, 503) or kind is errors.CommitConflict
    assert kind.retryable == (of_load and kind is not errors.OutcomeUnknown)


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("WRTIE", ["WRITE", "UPDATE"], "WRITE"),
        ("tennant_id", ["tenant_id", "table"], "tenant_id"),
        ("Orders", ["orders", "people"], "orders"),
        ("orders", ["Orders"], "Orders"),
        ("xyzzy", ["orders", "people"], None),
        ("orders", [], None),
        ("", ["orders"], None),
    ],
)
def test_the_nearest_name_is_the_one_most_likely_meant(name: str, known: list[str], found: str | None) -> None:
    assert nearest(name, known) == found


def test_a_name_of_megabytes_is_not_compared_with_the_known_ones() -> None:
    class Known:
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("they were compared")

    assert errors.nearest("k" * 1_000_000, cast(Any, Known())) is None
