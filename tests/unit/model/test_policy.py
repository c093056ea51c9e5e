"""What a policy shows: the union of what the roles of a sender show, by a model in plain Python."""

import hashlib
import operator
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import FirnError, Forbidden, InvalidFilter, InvalidRequest, InvalidSchema
from service.model.filters.attributes import AttributeValues
from service.model.filters.predicates import Always, And, Compare, In, IsNull, Not, Or, Predicate
from service.model.identity.principal import ANYONE, Grant, Principal
from service.model.policy.masks import ConstantMask, Hashed, Hidden, Mask, Null, Redacted, Unmasked
from service.model.policy.policy import POLICY_PROPERTY, PolicyRule, TablePolicy, check_columns, read_policy
from service.model.policy.view import RowView, State, view_of
from service.model.schema.types import Array, DecimalType, Field, Primitive, TableSchema

TEXT, LONG = Primitive("string"), Primitive("long")
SCHEMA = TableSchema(
    (
        Field("id", LONG, required=True),
        Field("region", TEXT),
        Field("owner", TEXT),
        Field("level", LONG),
        Field("tags", Array(TEXT)),
        Field("price", DecimalType(10, 2)),
        Field("day", Primitive("date")),
    ),
    primary_key=("id",),
)


def policy(**rules: Any) -> TablePolicy:
    return TablePolicy({role: PolicyRule(**rule) for role, rule in rules.items()}, "salt")


def seen(of: TablePolicy, roles: list[str], state: State | None = None, **attributes: Any) -> RowView | None:
    values = {name.replace("__", "."): value for name, value in attributes.items()}
    return view_of(of, roles, AttributeValues(values), SCHEMA, state or State.of_now(SCHEMA))


COMPARE: dict[str, Any] = {
    **{"eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "gte": operator.ge},
    **{"lt": operator.lt, "lte": operator.le},
}


def holds(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """A predicate of a row, by the rules of SQL: None is unknown."""
    match predicate:
        case And(children):
            found = [holds(child, row) for child in children]
            return False if False in found else None if None in found else True
        case Or(children):
            found = [holds(child, row) for child in children]
            return True if True in found else None if None in found else False
        case Not(child):
            inside = holds(child, row)
            return None if inside is None else not inside
        case IsNull(column):
            return row[column.name] is None
        case In(column, values, _):
            return None if row[column.name] is None else row[column.name] in values
        case Compare(column, sign, operand):
            value: Any = row[column.name]
            return None if value is None else bool(COMPARE[sign](value, operand))
        case Always(column, answer):
            return None if row[column.name] is None else answer
    raise AssertionError(predicate)


def masked(mask: Mask, value: Any) -> Any:
    match mask:
        case Unmasked():
            return value
        case ConstantMask(constant):
            return constant
        case Null() | Hidden():
            return None
    if value is None:
        return None
    if isinstance(mask, Hashed):
        return hashlib.sha256(f"{mask.salt}{value}".encode()).hexdigest()
    assert isinstance(mask, Redacted)
    return "****" + (value[-mask.keep :] if mask.keep and len(value) >= 2 * mask.keep else "")


def shown(view: RowView, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a view makes of a row."""
    if holds(view.rows, row) is not True:
        return None
    made = {}
    for field in view.schema.fields:
        column = view.masked.get(field.name)
        cases = column.cases if column else ((And(()), Unmasked()),)
        mask = next(mask for rows, mask in cases if holds(rows, row) is True)
        made[field.name] = masked(mask, row[field.name])
    return made


REGIONS, OWNERS = ["EU", "US", "", None], ["ann", "bo", None]
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "region": st.sampled_from(REGIONS),
        "owner": st.sampled_from(OWNERS),
        "level": st.sampled_from([0, 1, 2, None]),
        **{name: st.none() for name in ("tags", "price", "day")},
    }
)
# Filters, each with what it means of a row and the sender's attributes; None is unknown.
CONDITIONS: list[tuple[Any, Any]] = [
    ({"region": "EU"}, lambda row, of: _is(row["region"], "EU")),
    ({"region": None}, lambda row, of: row["region"] is None),
    ({"region": {"principal": "claims.region"}}, lambda row, of: _is(row["region"], of["claims.region"])),
    ({"owner": {"eq": {"principal": "id"}}}, lambda row, of: _is(row["owner"], of["id"])),
    (
        {"not": {"region": {"in": {"principal": "claims.regions"}}}},
        # An empty list has nothing in it, whatever the value is.
        lambda row, of: (
            None if row["region"] is None and of["claims.regions"] else row["region"] not in of["claims.regions"]
        ),
    ),
    (
        [{"field": "level", "operator": "lte", "value": {"principal": "claims.level"}}],
        lambda row, of: None if row["level"] is None else row["level"] <= of["claims.level"],
    ),
    ({"or": [{"region": "US"}, {"owner": {"principal": "id"}}]}, lambda row, of: _or(row, of)),
    (None, lambda row, of: True),
    ({}, lambda row, of: True),
]


def _is(value: Any, other: Any) -> bool | None:
    return None if value is None else value == other


def _or(row: Mapping[str, Any], of: Mapping[str, Any]) -> bool | None:
    found = [_is(row["region"], "US"), _is(row["owner"], of["id"])]
    return True if True in found else None if None in found else False


MASKS: dict[Any, int] = {"shown": 0, 4: 1, 1: 2, "hash": 3, "constant": 4, "null": 5, "hidden": 6}
"""Masks of `owner`, from the most open to the least."""


def mask_json(mask: Any) -> Any:
    return {"redact": mask} if isinstance(mask, int) else {"constant": "x"} if mask == "constant" else mask


RULE = st.tuples(st.integers(0, len(CONDITIONS) - 1), st.sampled_from(list(MASKS)))
ATTRIBUTES = st.fixed_dictionaries(
    {"id": st.sampled_from(["ann", "bo", "eve"])},
    optional={
        "claims.region": st.sampled_from(["EU", "US", "", 7]),
        "claims.regions": st.lists(st.sampled_from(["EU", "US"])),
        "claims.level": st.sampled_from([0, 1, Decimal("1.5"), "many", ["x"]]),
    },
)


@given(
    rules=st.dictionaries(st.sampled_from(["reader", "writer", "hr", "ops"]), RULE, min_size=1),
    roles=st.sets(st.sampled_from(["reader", "writer", "hr"])),
    attributes=ATTRIBUTES,
    rows=st.lists(ROWS, min_size=1),
)
def test_a_sender_sees_the_rows_and_values_that_any_of_its_roles_shows(
    rules: dict[str, tuple[int, Any]], roles: set[str], attributes: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    def rule(place: int, mask: Any) -> dict[str, Any]:
        return {"rows": CONDITIONS[place][0], "columns": {} if mask == "shown" else {"owner": mask_json(mask)}}

    of = policy(**{role: rule(*one) for role, one in rules.items()})
    stored = read_policy(of.text)
    assert stored is not None
    assert stored.check(SCHEMA) == of.check(SCHEMA)
    view = view_of(stored, roles, AttributeValues(attributes), SCHEMA, State.of_now(SCHEMA))
    held = [rules[role] for role in sorted(roles & rules.keys())]
    for row in rows:
        masks = [mask for place, mask in held if _shows(place, row, attributes)]
        found = dict(row) if view is None else shown(view, row)
        if not masks:
            assert found is None
            continue
        assert found is not None
        openest = min(masks, key=MASKS.__getitem__)
        of_owner = found.pop("owner", None)
        assert found == {name: value for name, value in row.items() if name != "owner"}
        named: dict[Any, Mask] = {"shown": Unmasked(), "hash": Hashed("salt"), "constant": ConstantMask("x")}
        expected = Redacted(openest) if isinstance(openest, int) else named.get(openest, Null())
        assert of_owner == masked(expected, row["owner"])
    if view is not None and held:
        assert ("owner" in view.schema.names) == any(mask != "hidden" for _, mask in held)


def _shows(place: int, row: dict[str, Any], attributes: dict[str, Any]) -> bool:
    named: dict[str, Any] = {"claims.region": str, "claims.regions": list, "claims.level": (int, Decimal)}
    text = str(CONDITIONS[place][0])
    for name, kind in named.items():
        # Whoever lacks an attribute, or has it in a form that does not fit, sees nothing by this rule.
        if f"'{name}'" in text and not isinstance(attributes.get(name), kind):
            return False
    return CONDITIONS[place][1](row, attributes) is True


@pytest.mark.parametrize(
    "rows",
    [
        {"owner": {"principal": "name"}},
        {"not": {"owner": {"principal": "claims.who"}}},
        {"or": [{"region": "EU"}, {"owner": {"principal": "claims.who"}}]},
        {"owner": {"not_in": {"principal": "claims.who"}}},
        {"owner": {"ne": {"principal": "claims.who"}}},
    ],
)
def test_whoever_lacks_an_attribute_sees_nothing(rows: Any) -> None:
    view = seen(policy(reader={"rows": rows}), ["reader"], claims__other="x")
    assert view is not None
    row = {"id": 1, "region": "EU", "owner": "bo", "level": 1, "tags": [], "price": None, "day": None}
    assert holds(view.rows, row) is False


@pytest.mark.parametrize("value", ["x", True, None, ["a"], {"a": 1}, "5; DROP", "2024-13-01"])
def test_an_attribute_that_does_not_fit_the_column_shows_nothing(value: Any) -> None:
    of = policy(reader={"rows": {"not": {"level": {"gt": {"principal": "claims.level"}}}}})
    view = seen(of, ["reader"], claims__level=value)
    row = {"id": 1, "region": "EU", "owner": "bo", "level": 1, "tags": [], "price": None, "day": None}
    assert view is not None
    assert holds(view.rows, row) is False


def test_a_role_without_a_rule_shows_nothing() -> None:
    view = seen(policy(hr={"rows": {"region": "EU"}}), ["reader", "writer"])
    assert view is not None
    assert holds(view.rows, dict.fromkeys(SCHEMA.names)) is False


def test_an_attribute_is_a_value_and_never_text_that_is_parsed() -> None:
    attack = "' OR 1=1 --"
    view = seen(policy(reader={"rows": {"owner": {"principal": "claims.o"}}}), ["reader"], claims__o=attack)
    assert view is not None
    [rule] = view.rows.children if isinstance(view.rows, Or) else ()
    assert isinstance(rule, Compare)
    assert rule.operand == attack


REFUSED: dict[str, Any] = {
    "an unknown column": {"rows": {"regoin": "EU"}},
    "an unknown attribute": {"rows": {"region": {"principal": "claim.region"}}},
    "no name of a claim": {"rows": {"region": {"principal": "claims."}}},
    "a name beside a number": {"rows": {"level": {"principal": "name"}}},
    "an attribute as a pattern": {"rows": {"region": {"like": {"principal": "claims.region"}}}},
    "an attribute as the start of a text": {"rows": {"region": {"starts_with": {"principal": "claims.region"}}}},
    "roles as one value": {"rows": {"region": {"principal": "roles"}}},
    "an expression, which can fail": {"rows": {"expression": "1 / level > 0"}},
    "an expression inside": {"rows": {"or": [{"not": {"expression": "level > 0"}}]}},
    "a regular expression": {"rows": {"region": {"regex": "(a+)+"}}},
    "a wrong literal": {"rows": {"level": "x"}},
    "text": {"rows": "region = 'EU'"},
    "a mask of an unknown column": {"columns": {"emial": "null"}},
    "an unknown mask": {"columns": {"owner": "blur"}},
    "null as a mask": {"columns": {"owner": None}},
    "a hash of a number": {"columns": {"level": "hash"}},
    "a redacted date": {"columns": {"day": {"redact": 2}}},
    "too many characters": {"columns": {"owner": {"redact": 1000}}},
    "true characters": {"columns": {"owner": {"redact": True}}},
    "a constant of another type": {"columns": {"level": {"constant": "x"}}},
    "a constant null": {"columns": {"level": {"constant": None}}},
    "a constant list": {"columns": {"tags": {"constant": ["x"]}}},
    "a mask with more": {"columns": {"owner": {"redact": 1, "constant": "x"}}},
}


@pytest.mark.parametrize("rule", REFUSED.values(), ids=REFUSED.keys())
def test_a_rule_that_does_not_fit_is_refused_with_its_place(rule: dict[str, Any]) -> None:
    with pytest.raises(FirnError) as refused:
        policy(reader=rule).check(SCHEMA)
    assert isinstance(refused.value, InvalidRequest | InvalidFilter)
    assert (refused.value.field or "").startswith("rules.reader.")


@pytest.mark.parametrize("role", ["admin", "", "a b", "x" * 101, "*"])
def test_a_role_has_a_name_and_is_not_admin(role: str) -> None:
    with pytest.raises(InvalidRequest, match=r"rules\."):
        TablePolicy({role: PolicyRule()}, "salt").check(SCHEMA)


EMPTY = '{"version": 1, "rules": {}, "salt": "s"}'


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", '{"version": 2, "rules": {}, "salt": "s"}', '{"rules": 1}', EMPTY]
)
def test_what_is_no_policy_is_not_read_as_an_empty_one(text: str) -> None:
    assert read_policy(text) is None


def test_a_policy_that_no_longer_fits_shows_nothing() -> None:
    of = policy(reader={"columns": {"email": "null"}})
    with pytest.raises(Forbidden, match="does not fit its columns"):
        seen(of, ["reader"])


def test_exact_numbers_are_stored_as_they_were_sent() -> None:
    rows = {"and": [{"price": {"gt": Decimal("0.10")}}, {"level": {"lt": 2**70}}]}
    stored = read_policy(policy(reader={"rows": rows}).text)
    assert stored is not None
    assert stored.rules["reader"].rows == rows


class TestAnEarlierState:
    """The columns of the table then, and what they are called now."""

    of = policy(reader={"rows": {"region": "EU"}, "columns": {"owner": "null"}})

    def test_is_shown_by_the_columns_that_are_meant_whatever_their_names_were(self) -> None:
        then = TableSchema((Field("area", TEXT), Field("region", TEXT), Field("person", TEXT), Field("id", LONG)))
        # What is called region then is another column, which was dropped since.
        state = State(then, {"area": "region", "region": None, "person": "owner", "id": "id"})
        view = seen(self.of, ["reader"], state)
        assert view is not None
        assert view.schema.names == ("area", "person", "id")
        assert view.masked.keys() == {"person"}
        assert shown(view, {"area": "EU", "region": "x", "person": "Ann", "id": 1}) == {
            "area": "EU",
            "person": None,
            "id": 1,
        }
        assert shown(view, {"area": "US", "region": "EU", "person": "Ann", "id": 1}) is None

    def test_without_a_column_that_the_filter_uses_shows_nothing(self) -> None:
        state = State(TableSchema((Field("id", LONG),)), {"id": "id"})
        with pytest.raises(Forbidden, match="did not have in this state"):
            seen(self.of, ["reader"], state)

    def test_without_a_masked_column_needs_no_mask(self) -> None:
        state = State(TableSchema((Field("region", TEXT),)), {"region": "region"})
        view = seen(self.of, ["reader"], state)
        assert view is not None
        assert not view.masked


def test_a_column_that_a_policy_uses_stays() -> None:
    of = policy(reader={"rows": {"region": "EU"}, "columns": {"owner": "hash"}})
    properties = {POLICY_PROPERTY: of.text}
    check_columns(properties, SCHEMA, ["level"])
    for gone in ("region", "owner"):
        with pytest.raises(InvalidSchema, match="SET_POLICY"):
            check_columns(properties, SCHEMA, [gone])
    with pytest.raises(InvalidSchema, match="SET_POLICY"):
        check_columns(properties, TableSchema((Field("region", TEXT), Field("owner", LONG))))


def test_the_attributes_of_a_sender_are_those_of_its_credential() -> None:
    grants = (Grant("writer", "acme", "shop"), Grant("reader", "acme"))
    ann = Principal("jwt:ann", grants, "jwt", {"region": "EU"}, ("support",))
    assert ann.attributes_in("acme", "shop") == {
        "name": "jwt:ann",
        "id": "ann",
        "tenant": "acme",
        "roles": ["reader", "writer", "support"],
        "claims.region": "EU",
    }
    assert ann.attributes_in("acme", "lab")["roles"] == ["reader", "support"]
    assert Principal("acme/loader", (Grant("reader"),)).attributes_in("acme", "x") == {
        "name": "acme/loader",
        "id": "loader",
        "roles": ["reader"],
    }
    assert "admin" in ANYONE.roles_in("acme", "shop")
    # What runs later needs its roles; claims are personal, and are stored nowhere.
    assert Principal.loads(ann.dumps() or "") == replace(ann, claims={})
    assert "EU" not in (ann.dumps() or "")
