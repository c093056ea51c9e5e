"""Whether a file is written again or gets a delete file, and where the rows of an edit are."""

import pyarrow as pa
import pytest

from service.engine.jobs.edits.places import FoundPlaces
from service.engine.jobs.edits.row_level import TouchedFile, files_to_rewrite
from service.settings.kinds import RowLevel

SMALL = TouchedFile(bytes=10_000, rows=100, hits=1)
MEDIUM = TouchedFile(bytes=600_000, rows=10_000, hits=1)
DENSE = TouchedFile(bytes=100_000, rows=12_000, hits=1)
LARGE = TouchedFile(bytes=100 << 20, rows=1_000_000, hits=10)
HALF_GONE = TouchedFile(bytes=100 << 20, rows=1_000_000, hits=500_000)


@pytest.mark.parametrize(
    ("mode", "files", "rewritten"),
    [
        ("copy_on_write", {"a": LARGE, "b": SMALL}, {"a", "b"}),
        ("merge_on_read", {"a": SMALL, "b": HALF_GONE}, set()),
        ("auto", {}, set()),
        ("auto", {"a": SMALL, "b": SMALL}, {"a", "b"}),
        ("auto", {"a": LARGE, "b": SMALL}, {"b"}),
        ("auto", {"a": MEDIUM, "b": MEDIUM, "c": SMALL}, {"a", "c"}),
        ("auto", {"a": DENSE, "b": DENSE, "c": SMALL}, {"a", "c"}),
        ("auto", {"a": LARGE, "b": HALF_GONE}, {"b"}),
        ("auto", {"a": TouchedFile(2 << 20, 3, 1)}, set()),
        ("auto", {"a": TouchedFile(2 << 20, 3, 2)}, {"a"}),
    ],
)
def test_auto_rewrites_little_or_what_loses_much(
    mode: RowLevel, files: dict[str, TouchedFile], rewritten: set[str]
) -> None:
    assert files_to_rewrite(mode, files) == rewritten


def test_bitmaps_hold_the_positions_of_each_range_of_a_file() -> None:
    bitmaps = pa.table(
        {
            "file": ["a", "b", "a"],
            "bucket": [0, 0, 2],
            "bits": [bytes([0b101]) + bytes(4095), bytes(4095) + bytes([0b1000_0000]), bytes([0, 1]) + bytes(4094)],
        }
    )
    found = FoundPlaces(bitmaps).in_files(["a", "b", "c"])
    assert {file: some.to_pylist() for file, some in found.items()} == {"a": [0, 2, 2 * 32_768 + 8], "b": [32_767]}
    assert FoundPlaces(bitmaps).in_files(["b"]).keys() == {"b"}


def test_a_row_that_two_records_meet_has_one_place() -> None:
    rows = pa.table({"file": ["a", "a", "b"], "pos": [7, 7, 3]})
    found = FoundPlaces(rows=rows).in_files(["a"])
    assert {file: some.to_pylist() for file, some in found.items()} == {"a": [7]}


def test_an_edit_that_keeps_no_places_has_none() -> None:
    assert FoundPlaces().in_files(["a"]) == {}
