"""A change of few rows: added up, found and written by contents, as Spark compares them."""

import pyarrow as pa

from service.engine.jobs.dynamic import few
from service.model.dynamic.plan import WEIGHT
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import Field, Primitive, TableSchema

SCHEMA = TableSchema((Field("k", Primitive("long")), Field("v", Primitive("double"))))


def net(*rows: tuple[int | None, float | None, int]) -> pa.Table:
    k, v, weights = ([row[i] for row in rows] for i in range(3))
    return pa.table(
        {"k": pa.array(k, pa.int64()), "v": pa.array(v, pa.float64()), WEIGHT: pa.array(weights, pa.int64())}
    )


def stored(*rows: tuple[int | None, float | None, str, int]) -> pa.Table:
    k, v, files, positions = ([row[i] for row in rows] for i in range(4))
    file, pos = PLACE_COLUMNS
    return pa.table(
        {
            "k": pa.array(k, pa.int64()),
            "v": pa.array(v, pa.float64()),
            file: files,
            pos: pa.array(positions, pa.int64()),
        }
    )


def test_weights_are_totalled_by_their_signs() -> None:
    assert few.totals(net((1, 1.0, 3), (2, None, -2), (3, 0.5, 1))) == (4, 2, 3)
    assert few.totals(net()) == (0, 0, 0)


def test_rows_that_go_are_found_as_often_as_they_go() -> None:
    rows = stored((1, 0.0, "a", 0), (1, -0.0, "a", 1), (1, 0.0, "b", 0), (None, None, "b", 4))
    found = few.places(rows, net((1, 0.0, -2), (None, None, -1)), SCHEMA)
    assert found is not None
    assert {path: at.to_pylist() for path, at in found.items()} == {"a": [0, 1], "b": [4]}


def test_no_place_is_given_if_a_row_is_missing() -> None:
    assert few.places(stored((1, 0.0, "a", 0)), net((1, 0.0, -2)), SCHEMA) is None


def test_the_rows_at_other_places_stay() -> None:
    rows = stored((1, 0.0, "a", 0), (2, 0.0, "a", 1), (3, 0.0, "b", 0))
    left = few.without(rows, {"a": pa.array([1]), "c": pa.array([0])})
    assert left["k"].to_pylist() == [1, 3]


def test_each_row_that_comes_is_written_as_often_as_it_comes() -> None:
    rows = few.new_rows(net((1, 1.0, 2), (2, 2.0, -1), (None, None, 1)), SCHEMA)
    assert rows.to_pylist() == [{"k": 1, "v": 1.0}, {"k": 1, "v": 1.0}, {"k": None, "v": None}]
