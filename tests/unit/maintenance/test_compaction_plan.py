"""Which files are small, and which of them are worth merging."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.catalog.files.data_files import DataFile
from service.catalog.files.small import MIB, find_small_files, small_bytes
from service.maintenance.compact.plan import small_files_beside
from service.settings import CompactionSettings


def files(*sizes: int, group: Any = "p") -> list[DataFile]:
    return [DataFile(f"{group}/{i}-{size}.parquet", size, 1, (0, group)) for i, size in enumerate(sizes)]


def test_files_below_the_threshold_are_small_and_one_at_it_is_not() -> None:
    found = find_small_files(files(9, 10, 11), 10, 2)
    assert [f.bytes for f in found.small] == [9]


def test_enough_small_files_of_one_partition_are_worth_merging() -> None:
    assert len(find_small_files(files(1, 1), 10, 3).worth_merging) == 0
    assert len(find_small_files(files(1, 1, 1), 10, 3).worth_merging) == 3


def test_large_files_are_left_alone_and_do_not_count() -> None:
    found = find_small_files(files(1, 99, 1), 10, 3)
    assert (len(found.small), found.worth_merging) == (2, ())


def test_partitions_are_looked_at_one_by_one() -> None:
    found = find_small_files([*files(1, 1, group="a"), *files(1, 1, 1, group="b"), *files(1, group=None)], 10, 3)
    assert len(found.small) == 6
    assert {f.group for f in found.worth_merging} == {(0, "b")}


def test_files_of_two_partitionings_never_merge() -> None:
    old = [DataFile(f"old-{i}", 1, 1, (0, "p")) for i in range(2)]
    new = [DataFile(f"new-{i}", 1, 1, (1, "p")) for i in range(2)]
    assert find_small_files(old + new, 10, 3).worth_merging == ()


def test_a_file_of_which_much_is_deleted_counts_as_small_and_is_worth_it_by_itself() -> None:
    little, much = (replace(f, rows=10, deleted=n) for f, n in zip(files(99, 98), (2, 3), strict=True))
    found = find_small_files([little, much, *files(1)], 10, 3)
    assert [f.bytes for f in found.small] == [98, 1]
    assert (found.worth_merging, found.heavy) == ((much,), 1)
    together = find_small_files([little, much, *files(1, 2)], 10, 3)
    assert [f.bytes for f in together.worth_merging] == [98, 1, 2]
    assert find_small_files([replace(f, rows=10, deleted=9) for f in files(1)], 10, 3).worth_merging == ()


def test_delete_files_of_small_files_count_with_them() -> None:
    one, other = files(1, 2)
    deleted = replace(one, rows=10, deleted=1, deletes=("d",))
    assert find_small_files([one, other], 10, 3).worth_merging == ()
    assert find_small_files([deleted, other], 10, 3).worth_merging == (deleted, other)
    assert find_small_files([deleted], 10, 3).worth_merging == ()
    assert find_small_files([deleted], 10, 2).worth_merging == (deleted,)
    assert small_files_beside([deleted, other], 10, {one.path}) == {one.path: 3}


def test_delete_files_of_files_of_a_good_size_count_for_their_partition() -> None:
    light = [replace(file, rows=10, deleted=1, deletes=("d",)) for file in files(98, 99)]
    whole, small = files(97, 1)
    found = find_small_files([*light, whole, small], 10, 3)
    assert [f.bytes for f in found.worth_merging] == [98, 99, 1]
    assert (len(found.small), found.heavy, found.light) == (1, 0, 2)
    assert find_small_files([*light, whole], 10, 3).worth_merging == ()
    assert find_small_files([*light, whole], 10, 2).worth_merging == tuple(light)
    assert small_files_beside([*light, whole, small], 10, {whole.path}) == {whole.path: 3}
    elsewhere = [replace(file, group=(0, "q")) for file in light]
    assert find_small_files([light[0], elsewhere[0], small], 10, 3).worth_merging == ()


def test_an_empty_table_has_nothing_to_do() -> None:
    found = find_small_files([], 10, 2)
    assert (found.small, found.worth_merging) == ((), ())


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=30),
    st.integers(1, 20),
    st.integers(2, 5),
)
def test_what_is_worth_merging_is_small_and_never_alone(
    sizes: list[tuple[int, str]], threshold: int, min_files: int
) -> None:
    every = [DataFile(str(i), size, 1, (0, group)) for i, (size, group) in enumerate(sizes)]
    found = find_small_files(every, threshold, min_files)
    assert list(found.small) == [f for f in every if f.bytes < threshold]
    assert set(found.worth_merging) <= set(found.small)
    for group in {f.group for f in found.small}:
        together = [f for f in found.small if f.group == group]
        chosen = [f for f in found.worth_merging if f.group == group]
        assert chosen == (together if len(together) >= min_files else [])


def test_small_means_below_the_threshold() -> None:
    assert small_bytes(CompactionSettings(small_file_threshold_mb=64), 128) == 64 * MIB


def test_a_merged_file_is_not_small_again() -> None:
    """With a target below the threshold, files of the target's size must count as done."""
    assert small_bytes(CompactionSettings(small_file_threshold_mb=64), 8) == 6 * MIB
    for target in (1, 2, 64, 85, 86, 128, 1000):
        assert small_bytes(CompactionSettings(small_file_threshold_mb=64), target) < target * MIB
