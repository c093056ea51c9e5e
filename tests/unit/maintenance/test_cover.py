"""What has been written anew, compared with a table that others go on changing."""

from hypothesis import given
from hypothesis import strategies as st

from service.catalog.files.data_files import DataFile
from service.maintenance.repartition.cover import RewriteCoverage, RewrittenBatch, bundles, parts_of, slices


def file(path: str, rows: int = 10, size: int = 100, group: tuple[object, ...] = (0,)) -> DataFile:
    return DataFile(path, size, rows, group)


A, B, C, D = (file(name) for name in "abcd")


def covering(*batches: tuple[DataFile, ...], deletes: dict[str, tuple[str, ...]] | None = None) -> RewriteCoverage[str]:
    made = [
        RewrittenBatch(files, {f.path: (deletes or {})[f.path] for f in files if f.path in (deletes or {})}, "w")
        for files in batches
    ]
    return RewriteCoverage(made)


def test_at_first_every_file_is_new() -> None:
    left = RewriteCoverage[str]().compare([A, B], {})
    assert (left.new, left.again, left.spoilt) == ((A, B), (), ())
    assert left.bytes == 200


def test_what_was_added_meanwhile_is_all_that_is_left() -> None:
    left = covering((A, B), (C,)).compare([A, B, C, D], {})
    assert (left.files, left.spoilt) == ((D,), ())


def test_a_batch_of_which_a_file_is_gone_is_written_again_without_it() -> None:
    cover = covering((A, B), (C,))
    left = cover.compare([B, C, D], {})
    assert (left.again, left.new) == ((B,), (D,))
    assert left.spoilt == (cover.batches[0],)
    cover.batches.remove(left.spoilt[0])
    assert cover.compare([B, C, D], {}).new == (B, D)


def test_rows_deleted_meanwhile_spoil_a_batch_and_those_deleted_before_do_not() -> None:
    cover = covering((A, B), (C,), deletes={"c": ("x",)})
    assert cover.compare([A, B, C], {"c": ("x",)}).files == ()
    assert cover.compare([A, B, C], {"a": ("y",), "c": ("x",)}).again == (A, B)
    assert cover.compare([A, B, C], {"c": ("x", "z")}).again == (C,)
    assert cover.compare([A, B, C], {}).again == (C,)


names = st.sets(st.sampled_from("abcdefgh"))


@given(st.lists(st.tuples(names, st.integers(1, 3)), max_size=6))
def test_however_a_table_changes_what_stands_and_what_is_left_are_its_files_each_once(
    states: list[tuple[set[str], int]],
) -> None:
    cover = RewriteCoverage[str]()
    for live, most in states:
        files = [file(path) for path in sorted(live)]
        left = cover.compare(files, {})
        for batch in left.spoilt:
            cover.batches.remove(batch)
        for part in bundles(left.files, most * 10, 10_000):
            cover.batches.append(RewrittenBatch(part, {}, "w"))
        assert sorted(f.path for batch in cover.batches for f in batch.files) == sorted(live)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20),
    st.none() | st.integers(1, 60),
    st.integers(1, 60),
)
def test_bundles_hold_every_file_once_and_no_more_than_was_allowed_unless_it_is_one_file(
    sizes: list[tuple[int, int]], most_rows: int | None, most_bytes: int
) -> None:
    files = [file(f"{n:02}", rows, size) for n, (rows, size) in enumerate(sizes)]
    found = list(bundles(files, most_rows, most_bytes))
    assert sorted(f.path for part in found for f in part) == [f.path for f in files]
    for part in found:
        assert part
        if len(part) > 1:
            assert most_rows is None or sum(f.rows for f in part) <= most_rows
            assert sum(f.bytes for f in part) <= most_bytes


def test_files_of_one_partition_stand_together_those_without_a_value_first() -> None:
    files = [file("1", group=(0, 2)), file("2", group=(0, None)), file("3", group=(0, 1)), file("4", group=(0, 2))]
    [bundle] = bundles(files, None, 10_000)
    assert [f.path for f in bundle] == ["2", "3", "1", "4"]


@given(st.integers(1, 200), st.integers(1, 200))
def test_the_parts_of_a_file_hold_every_row_once_and_no_more_than_was_allowed(rows: int, most: int) -> None:
    found = list(slices(rows, parts_of([file("a", rows)], most)))
    assert [position for part in found for position in part] == list(range(rows))
    assert all(0 < len(part) <= most for part in found)


def test_only_a_file_by_itself_is_rewritten_in_parts() -> None:
    assert parts_of([A, B], 20) == parts_of([A], 10) == parts_of([A], None) == parts_of([file("e", rows=0)], 5) == 1
    assert parts_of([A], 4) == 3
