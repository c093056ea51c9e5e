"""Of rows that were written together, marks say whose they are, whatever order they are read in."""

from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.model.row_marks import assign_rows, row_marks, share_rows

BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=6), min_size=2)


def rows(values: list[tuple[int, str]]) -> pa.Table:
    return pa.table({"n": pa.array([v[0] for v in values], pa.int64()), "s": [v[1] for v in values]})


@given(BATCHES, st.randoms(use_true_random=False))
def test_each_request_gets_as_many_rows_of_each_content_as_it_brought(
    batch: list[list[tuple[int, str]]], random: Random
) -> None:
    shared = share_rows(rows([row for part in batch for row in part]), [len(part) for part in batch], 0, 0)
    read = [row for part in batch for row in part]
    random.shuffle(read)
    owner = assign_rows(shared, [row_marks(rows(read))])
    assert owner is not None
    for n, part in enumerate(batch):
        assert sorted(row for row, of in zip(read, owner, strict=True) if of == n) == sorted(part)


def test_the_largest_request_has_no_marks() -> None:
    shared = share_rows(rows([(1, "a"), (2, "a"), (3, "a"), (4, "a")]), [1, 2, 1], 0, 0)
    assert (shared.unmarked, len(shared.marks)) == (1, 16)


def test_rows_that_are_not_those_of_the_batch_are_nobodys() -> None:
    shared = share_rows(rows([(1, "a"), (2, "a"), (3, "a")]), [1, 2], 0, 0)
    assert assign_rows(shared, [row_marks(rows([(2, "a"), (3, "a"), (9, "a")]))]) is None
    assert assign_rows(shared, [row_marks(rows([(1, "a"), (2, "a")]))]) is None


def test_a_computed_column_is_read_as_it_was_sent() -> None:
    sent = rows([(1, "a"), (2, "b"), (3, "c")]).append_column("d", pa.array([None, 7, None], pa.int64()))
    shared = share_rows(sent, [1, 1, 1], 0, 0)
    stored = sent.set_column(2, "d", pa.array([10, 7, 30], pa.int64()))
    empty = stored.set_column(2, "d", pa.nulls(3, pa.int64()))
    assert assign_rows(shared, [row_marks(stored), row_marks(empty)]) == [0, 1, 2]


def test_a_mark_does_not_depend_on_how_arrow_spells_a_type() -> None:
    moment = datetime(2024, 5, 1, 10, 11, 12, 45, UTC)
    one = pa.table(
        {
            "t": pa.array([moment], pa.timestamp("us", "UTC")),
            "d": pa.array([date(2024, 5, 1)]),
            "f": pa.array([0.1], pa.float32()),
            "i": pa.array([7], pa.int32()),
            "c": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
            "l": pa.array([[{"at": moment, "s": "x"}]]),
        }
    )
    other = pa.table(
        {
            "t": pa.array([moment], pa.timestamp("us", "Etc/UTC")),
            "d": pa.array([date(2024, 5, 1)]),
            "f": one["f"].cast(pa.float64()),
            "i": pa.array([7], pa.int64()),
            "c": pa.array([Decimal("1.50")], pa.decimal128(20, 2)),
            "l": pa.array(
                [[{"at": moment, "s": "x"}]],
                pa.large_list(pa.struct({"at": pa.timestamp("us", "Etc/UTC"), "s": pa.large_string()})),
            ),
        }
    )
    assert row_marks(one) == row_marks(other)
