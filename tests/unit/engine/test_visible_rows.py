"""The SQL of what a sender sees of a table."""

from typing import Any

import pytest

from service.engine.sql.policies.rows import visible_rows
from service.engine.sql.sql import Parameters
from service.model.filters.attributes import AttributeValues
from service.model.policy.policy import PolicyRule, TablePolicy
from service.model.policy.view import State, view_of
from service.model.schema.types import Field, Primitive, TableSchema

SCHEMA = TableSchema(
    (Field("id", Primitive("long")), Field("own`er", Primitive("string")), Field("x", Primitive("string")))
)
ATTACKS = ["' OR '1'='1", "x') OR (TRUE", "`id`", ":p0", "'; DROP TABLE t; --", "${env:HOME}", "\\", "%", "\u2028"]


def rendered(rule: dict[str, Any], claim: str = "", **more: Any) -> tuple[str, dict[str, Any]]:
    policy = TablePolicy({"reader": PolicyRule(**rule)}, "pepper")
    attributes = AttributeValues({"claims.x": claim})
    view = view_of(policy, ["reader"], attributes, SCHEMA, State.of_now(SCHEMA))
    assert view is not None
    parameters = Parameters()
    return visible_rows(view, "the_table", parameters, **more), parameters.values


@pytest.mark.parametrize("claim", ATTACKS)
def test_what_is_known_of_a_sender_is_in_no_text(claim: str) -> None:
    for rows in ({"own`er": {"principal": "claims.x"}}, {"own`er": {"in": ["a", {"principal": "claims.x"}]}}):
        text, values = rendered({"rows": rows}, claim)
        assert text == rendered({"rows": rows}, "plain")[0]
        assert claim in values.values()


@pytest.mark.parametrize("mask", [*({"constant": claim} for claim in ATTACKS), "hash", "redact", {"redact": 3}])
def test_masks_are_values_too(mask: Any) -> None:
    text, values = rendered({"columns": {"x": mask}})
    assert not any(attack in text for attack in ATTACKS if len(attack) > 4)
    assert "pepper" not in text
    assert ("pepper" in values.values()) == (mask == "hash")


def test_columns_are_quoted_and_hidden_ones_are_not_read() -> None:
    text, _ = rendered({"columns": {"x": "hidden"}})
    assert text == ("(SELECT `id`, `own``er` FROM the_table WHERE (TRUE) AND monotonically_increasing_id() >= 0)")


def test_places_are_kept_beside_the_columns() -> None:
    text, _ = rendered({"columns": {"x": "null"}}, places=("a", "b"))
    assert text.startswith("(SELECT `id`, `own``er`, CAST(NULL AS STRING) AS `x`, `a`, `b` FROM")


def test_whoever_sees_no_row_reads_none() -> None:
    text, _ = rendered({"rows": {"x": {"principal": "claims.other"}}})
    assert "WHERE (FALSE) AND" in text
