"""How the columns of a file are compared with those of a dataset."""

from typing import Any

import pytest

from service.ingest.drift import Drift, cleaning_of, compare
from service.ingest.files import read_dataset
from service.model.ingest.dataset import Dataset, DriftRules


def dataset(**columns: Any) -> Dataset:
    listed = [{"name": n, **(v if isinstance(v, dict) else {"type": v})} for n, v in columns.items()]
    return read_dataset({"columns": listed})


def test_names_are_compared_without_case_and_spaces() -> None:
    wanted = dataset(id="INTEGER", day={"type": "DATE", "source": "Sold On"})
    assert not compare((" ID", "sold on "), {}, wanted)
    assert [column.field for column in cleaning_of(wanted, (" ID", "sold on ")).columns] == [" ID", "sold on "]


def test_new_and_missing_columns_are_named() -> None:
    wanted = dataset(
        id="INTEGER", a="VARCHAR", b={"type": "VARCHAR", "default": "x"}, c={"type": "INTEGER", "expression": "id + 1"}
    )
    assert compare(("id", "z", "y"), {}, wanted) == Drift(("z", "y"), ("a",))


@pytest.mark.parametrize(
    ("given", "column", "fits"),
    [
        ("INTEGER", "BIGINT", True),
        ("BIGINT", "INTEGER", False),
        ("VARCHAR", "DATE", True),
        ("DOUBLE", "DECIMAL(10,2)", True),
        ("TIMESTAMP", "DATE", False),
        ("BOOLEAN", "INTEGER", False),
        ("DECIMAL(5,2)", "DOUBLE", True),
    ],
)
def test_a_type_whose_values_do_not_belong_into_the_column_is_drift(given: str, column: str, fits: bool) -> None:
    assert compare(("v",), {"v": given}, dataset(v=column)).retyped == ({} if fits else {"v": given})


def test_the_rules_choose_what_refuses_a_file_and_what_changes_the_table() -> None:
    drift = Drift(("a",), ("b",), {"c": "BIGINT"})
    rules = DriftRules(new="evolve", missing="ignore", retyped="fail")
    assert drift.refused(rules) == Drift(retyped={"c": "BIGINT"})
    assert drift.evolved(rules) == Drift(new=("a",))
    assert drift.as_json() == {"new": ["a"], "missing": ["b"], "retyped": {"c": "BIGINT"}}
    assert str(drift) == "new columns a; missing columns b; other types: c is BIGINT"
