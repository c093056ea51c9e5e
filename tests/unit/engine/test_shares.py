"""A compaction divides the files of a group among its readers, without changing their order."""

from hypothesis import given
from hypothesis import strategies as st

from service.engine.jobs.rewrite import Share, shares


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 16))
def test_every_file_is_in_one_share_in_order_and_there_are_no_more_tasks_than_readers(
    sizes: list[int], readers: int
) -> None:
    found = list(shares(sizes, readers))
    assert [i for share in found for i in range(share.start, share.end)] == list(range(len(sizes)))
    assert sum(share.parts for share in found) <= readers
    assert all(share.parts == 1 or share.end - share.start == 1 for share in found)


def test_files_of_one_size_are_divided_evenly() -> None:
    assert list(shares([10] * 8, 4)) == [Share(0, 2), Share(2, 4), Share(4, 6), Share(6, 8)]


def test_a_large_file_is_read_by_several_tasks() -> None:
    assert list(shares([90, 5, 5], 10)) == [Share(0, 1, 9), Share(1, 3)]
    assert list(shares([5, 95], 10)) == [Share(0, 1), Share(1, 2, 9)]
