"""A table's policy: for each role, which rows it shows and how it masks columns. A property of the table stores it."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import orjson

from service.errors import FirnError, InvalidFilter, InvalidRequest, InvalidSchema
from service.model import wire
from service.model.filters.attributes import AttributeValues, check_attribute
from service.model.filters.filters import parse_filter
from service.model.filters.predicates import (
    EVERY_ROW,
    NO_ROW,
    And,
    Compare,
    ExpressionHolds,
    HasElement,
    In,
    IsNull,
    Matches,
    Not,
    Or,
    Predicate,
)
from service.model.policy.masks import Mask, read_mask, salted
from service.model.schema.columns import Column, columns_of
from service.model.schema.types import TableSchema

POLICY_PROPERTY = "firn.policy"
MOST_ROLES = 50
_MOST_CHARACTERS = 100_000
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_RULES = "rules"
_FIRST = "change the policy first, with SET_POLICY"


@dataclass(frozen=True)
class PolicyRule:
    """What one role shows, as the request said it."""

    rows: Any = None
    """A filter, which may use attributes of the sender; None for every row."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The masks of columns by name."""

    @property
    def shows_all(self) -> bool:
        return self.rows in (None, {}, []) and not self.columns


@dataclass(frozen=True)
class TablePolicy:
    """The rules of the roles, and the salt of hashes. A role without a rule shows nothing."""

    rules: Mapping[str, PolicyRule]
    salt: str

    @property
    def text(self) -> str:
        """What the property of the table holds."""
        rules = {role: {"rows": rule.rows, "columns": dict(rule.columns)} for role, rule in self.rules.items()}
        value = _exact({"version": 1, _RULES: rules, "salt": self.salt})
        return orjson.dumps(value).decode()

    @property
    def described(self) -> dict[str, Any]:
        """The rules, as SET_POLICY accepts them."""
        return {
            role: {
                **({} if rule.rows is None else {"rows": rule.rows}),
                **({"columns": dict(rule.columns)} if rule.columns else {}),
            }
            for role, rule in self.rules.items()
        }

    def check(self, schema: TableSchema) -> frozenset[str]:
        """The columns that the rules use; InvalidRequest, naming the place, if a rule does not fit the columns."""
        if len(self.rules) > MOST_ROLES:
            raise InvalidRequest.at(_RULES, f"there are rules for {len(self.rules)} roles; send at most {MOST_ROLES}")
        used: set[str] = set()
        for role, rule in self.rules.items():
            path = f"{_RULES}.{role}"
            check_role(role, path)
            if rule.rows is not None:
                used |= _check_rows(rule.rows, schema, f"{path}.rows")
            masks_of(rule, schema, self.salt, f"{path}.columns")
            used |= rule.columns.keys()
        if len(self.text) > _MOST_CHARACTERS:
            raise InvalidRequest.at(
                _RULES, f"they have {len(self.text)} characters; shorten them to {_MOST_CHARACTERS}"
            )
        return frozenset(used)


def read_policy(text: str) -> TablePolicy | None:
    """The policy of a property's text; None if another program has written something else."""
    try:
        value = wire.parse(text)
        rules = {role: PolicyRule(rule["rows"], rule["columns"]) for role, rule in value[_RULES].items()}
        ok = value["version"] == 1 and isinstance(value["salt"], str) and value["salt"]
        ok = ok and bool(rules) and all(isinstance(rule.columns, dict) for rule in rules.values())
    except (FirnError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return TablePolicy(rules, value["salt"]) if ok else None


def check_columns(properties: Mapping[str, str], after: TableSchema, gone: Collection[str] = ()) -> None:
    """Refuse a change of columns after which the policy of a table would not fit them; `gone` are the columns that are
    dropped or renamed. A policy that another program made unreadable is left to SET_POLICY."""
    policy = read_policy(properties.get(POLICY_PROPERTY, ""))
    if policy is None:
        return
    try:
        lost = sorted(policy.check(after) & set(gone))
    except InvalidRequest as e:
        raise InvalidSchema(f"the policy of the table would not fit its columns any more: {e.message}; {_FIRST}") from e
    if lost:
        raise InvalidSchema(f"the policy of the table uses {lost[0]!r}; {_FIRST}", field=lost[0])


def check_role(role: str, path: str) -> None:
    if role == "admin":
        raise InvalidRequest.at(
            path, "administrators see all rows and columns, as they can change the policy; leave this rule out"
        )
    if not _ROLE.fullmatch(role):
        raise InvalidRequest.at(
            path, f"{role[:80]!r} is not the name of a role; use reader, writer, or a role that tokens have"
        )


def rows_of(rule: PolicyRule, schema: TableSchema, attributes: AttributeValues) -> Predicate:
    """The rows that a rule, which was checked with the schema, shows to a sender with these attributes. None, if the
    sender lacks an attribute that the filter names, or its value does not fit the column."""
    if rule.rows is None:
        return EVERY_ROW
    try:
        return parse_filter(rule.rows, columns_of(_plain(schema)), "policy", attributes.value)
    except InvalidFilter:
        return NO_ROW


def masks_of(rule: PolicyRule, schema: TableSchema, salt: str, path: str = "policy") -> dict[str, Mask]:
    """The masks of a rule, by column."""
    masks = {}
    for name, value in rule.columns.items():
        column = schema.field(name, path=f"{path}.{name}")
        masks[name] = salted(read_mask(value, column.type, f"{path}.{name}"), salt)
    return masks


def columns_in(predicate: Predicate) -> set[str]:
    """The names of the columns that a predicate uses."""
    match predicate:
        case And(children) | Or(children):
            return set().union(*map(columns_in, children)) if children else set()
        case Not(child):
            return columns_in(child)
        case ExpressionHolds(expression):
            return set(expression.columns)
        case Compare(column, _, operand) | Matches(column, _, operand) if isinstance(operand, Column):
            return {column.name, operand.name}
    return {predicate.column.name}


def renamed(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    """A predicate over whole columns that have other names; `names` has the new one of each."""

    def to(column: Column) -> Column:
        name = names[column.name]
        return replace(column, name=name, steps=(name,))

    match predicate:
        case And(children):
            return And(tuple(renamed(child, names) for child in children))
        case Or(children):
            return Or(tuple(renamed(child, names) for child in children))
        case Not(child):
            return Not(renamed(child, names))
        case Compare(column, _, operand) | Matches(column, _, operand) if isinstance(operand, Column):
            return replace(predicate, column=to(column), operand=to(operand))
        case ExpressionHolds():
            raise TypeError("a policy has no expressions")
    return replace(predicate, column=to(predicate.column))


def _check_rows(rows: Any, schema: TableSchema, path: str) -> set[str]:
    predicate = parse_filter(rows, columns_of(_plain(schema)), path, check_attribute)
    _refuse_failing(predicate, path)
    names = columns_in(predicate)
    for name in sorted(names - set(schema.names)):
        raise InvalidFilter.at(path, f"{name!r} is inside of a column; the filter of a policy uses whole columns")
    return names


def _refuse_failing(predicate: Predicate, path: str) -> None:
    """Refuse conditions that can fail for a row: the error would show that there is such a row."""
    match predicate:
        case And(children) | Or(children):
            for child in children:
                _refuse_failing(child, path)
        case Not(child):
            _refuse_failing(child, path)
        case ExpressionHolds() | Matches(operator="regex"):
            kind = "an expression" if isinstance(predicate, ExpressionHolds) else "regex"
            raise InvalidFilter.at(
                path, f"{kind} cannot be used in a policy, because it can fail for a row; use other conditions"
            )
        case Compare() | In() | IsNull() | HasElement() | Matches():
            return


def _plain(schema: TableSchema) -> TableSchema:
    """Without internal columns."""
    return TableSchema(schema.fields)


def _exact(value: Any) -> Any:
    """A value of JSON whose numbers are written with all their digits."""
    if isinstance(value, Decimal) or (isinstance(value, int) and not isinstance(value, bool)):
        return orjson.Fragment(str(value))
    if isinstance(value, Mapping):
        return {key: _exact(item) for key, item in value.items()}
    return [_exact(item) for item in value] if isinstance(value, list | tuple) else value
