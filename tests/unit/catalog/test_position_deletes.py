"""Which delete files may concern a data file."""

import pytest

from service.catalog.files.manifests import DeleteFile


@pytest.mark.parametrize(
    ("first", "last", "names"),
    [("b", "b", True), ("a", "c", True), ("", None, True), ("b", None, True), ("c", None, False), ("a", "a", False)],
)
def test_a_delete_file_may_name_the_data_files_between_its_bounds(first: str, last: str | None, names: bool) -> None:
    assert DeleteFile("d", True, first, last, 1).may_name("b") == names
