"""The dataset that adopts the columns of a file."""

from typing import Any

import pytest

from service.errors import FileRejected, InvalidRequest
from service.ingest.drift import Drift, adopted, compare, open_drift, read_drift, stored_drift
from service.ingest.files import read_dataset, yaml_text
from service.model.ingest.dataset import Dataset


def dataset(*columns: dict[str, Any], **rules: Any) -> Dataset:
    return read_dataset({"columns": list(columns), **rules})


SALES = dataset(
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "sold", "type": "DATE", "source": "Date"},
    {"name": "n", "type": "INTEGER"},
    {"name": "shop", "type": "VARCHAR", "default": "web"},
)


@pytest.mark.parametrize("what", ["fail", "ignore", "evolve"])
def test_each_kind_of_drift_has_a_rule_of_its_own(what: str) -> None:
    drift = Drift(("a",), ("b",), {"c": "DATE"})
    for kind in ("new", "missing", "retyped"):
        others = dict.fromkeys(("new", "missing", "retyped"), "ignore")
        rules = dataset({"name": "id", "type": "BIGINT"}, on_drift={**others, kind: what}).on_drift
        only = Drift(**{kind: getattr(drift, kind)})
        assert drift.refused(rules) == (only if what == "fail" else Drift())
        assert drift.evolved(rules) == (only if what == "evolve" else Drift())


def test_the_dataset_that_adopts_a_drift_has_none_any_more() -> None:
    fields, types = ("id", "n", " more"), {"id": "BIGINT", "n": "BIGINT", " more": "DATE"}
    drift = compare(fields, types, SALES)
    after = adopted(SALES, drift, types)
    assert not compare(fields, types, after)
    assert not open_drift(drift, after)
    assert [(c.name, c.type, c.optional) for c in after.columns] == [
        ("id", "BIGINT", False),
        ("sold", "DATE", True),
        ("n", "BIGINT", False),
        ("shop", "VARCHAR", False),
        ("more", "DATE", False),
    ]
    assert read_dataset(yaml_text(after)) == after


def test_a_required_column_that_files_may_lack_may_be_null() -> None:
    after = adopted(SALES, Drift(missing=("id",)), {})
    assert (after.columns[0].optional, after.columns[0].nullable) == (True, True)


def test_a_column_that_came_back_is_no_drift() -> None:
    after = adopted(SALES, Drift(missing=("sold",)), {})
    assert not compare(("id", "Date", "n", "shop"), {}, after)


def test_a_column_that_cannot_be_widened_is_refused_with_the_reason() -> None:
    with pytest.raises(FileRejected, match="'sold' is VARCHAR in the file but DATE"):
        adopted(SALES, Drift(retyped={"sold": "VARCHAR"}), {})


def test_texts_that_did_not_convert_stay_open_until_the_column_holds_texts() -> None:
    drift = Drift(retyped={"sold": "VARCHAR"})
    assert open_drift(drift, SALES) == drift
    assert not open_drift(drift, dataset({"name": "sold", "type": "VARCHAR"}))


def test_a_drift_is_kept_with_the_types_of_its_new_columns() -> None:
    text = stored_drift({"drift": {"new": ["more"], "missing": ["sold"]}, "types": {"more": "DATE"}})
    assert text is not None
    assert read_drift(text) == (Drift(("more",), ("sold",)), {"more": "DATE"})
    assert stored_drift({"rejects": {"id: no value": 1}}) is None


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"type": "DATE", "optional": True, "nullable": False}, "needs a default"),
        ({"type": "DATE", "optional": True, "expression": "x"}, "computes this one"),
    ],
)
def test_a_column_that_is_optional_and_cannot_be_is_refused(column: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        dataset({"name": "x", "type": "DATE"}, {"name": "id", **column})


@pytest.mark.parametrize(
    ("column", "kind", "wider"),
    [
        ("INTEGER", "BIGINT", "BIGINT"),
        ("DECIMAL(10,2)", "DECIMAL(12,2)", "DECIMAL(12,2)"),
        ("decimal( 10 , 2 )", "DECIMAL(12,2)", "DECIMAL(12,2)"),
        ("DECIMAL", "DECIMAL(20,3)", "DECIMAL(20,3)"),
        ("DECIMAL(10,2)", "DECIMAL(11,0)", "DECIMAL(13,2)"),
        ("DECIMAL(10,2)", "DECIMAL(38,2)", "DECIMAL(38,2)"),
    ],
)
def test_a_column_becomes_as_wide_as_iceberg_allows(column: str, kind: str, wider: str) -> None:
    rules = dataset({"name": "n", "type": column})
    drift = compare(("n",), {"n": kind}, rules, with_wider_decimals=True)
    assert drift.retyped == {"n": kind}
    after = adopted(rules, drift, {})
    assert after.columns[0].type == wider
    assert not open_drift(drift, after)
    assert not compare(("n",), {"n": kind}, after, with_wider_decimals=True)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("DECIMAL(10,2)", "DECIMAL(10,2)"),
        ("DECIMAL(10,2)", "DECIMAL(9,2)"),
        ("DECIMAL(10,2)", "DECIMAL(10,3)"),  # no more digits before the point
        ("DECIMAL(10,2)", "DECIMAL(14,4)"),  # more digits behind it: its rows may be rejected
        ("DECIMAL(10,2)", "DECIMAL(38,0)"),  # 40 digits
        ("DECIMAL(10,2)", "BIGINT"),
    ],
)
def test_a_decimal_that_cannot_become_wider_is_no_drift(column: str, kind: str) -> None:
    assert not compare(("n",), {"n": kind}, dataset({"name": "n", "type": column}), with_wider_decimals=True)


def test_a_wider_decimal_is_drift_only_if_that_is_asked_for() -> None:
    assert not compare(("n",), {"n": "DECIMAL(12,2)"}, dataset({"name": "n", "type": "DECIMAL(10,2)"}))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("BIGINT", "DOUBLE"),
        ("DATE", "TIMESTAMP"),
        ("BOOLEAN", "INTEGER"),
        ("DOUBLE", "TIMESTAMP"),
        ("INTEGER", "DOUBLE"),
    ],
)
def test_every_other_change_is_refused_with_what_is_possible(column: str, kind: str) -> None:
    rules = dataset({"name": "n", "type": column})
    with pytest.raises(FileRejected, match=r"only INTEGER becomes BIGINT, and DECIMAL.*another name and type"):
        adopted(rules, compare(("n",), {"n": kind}, rules), {})
