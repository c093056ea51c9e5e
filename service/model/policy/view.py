"""What a sender sees of a table: the rows that any of its roles shows, each value as openly as any of them shows it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from service.errors import Forbidden, InvalidRequest
from service.model.filters.attributes import AttributeValues
from service.model.filters.predicates import EVERY_ROW, NO_ROW, Or, Predicate
from service.model.policy.masks import Hidden, Mask, Null, Unmasked
from service.model.policy.policy import TablePolicy, columns_in, masks_of, renamed, rows_of
from service.model.schema.types import Field, TableSchema

BROKEN = (
    "the policy of this table does not fit its columns any more, so nothing of it is shown; an administrator can "
    "correct it with SET_POLICY"
)
NOT_THEN = (
    "the policy of this table uses a column that the table did not have in this state, so nothing of it is shown; read "
    "a later state"
)
Cases = tuple[tuple[Predicate, Mask], ...]
_Rule = tuple[Predicate, Mapping[str, Mask]]
_SHOWN: Cases = ((EVERY_ROW, Unmasked()),)
_HIDDEN: Cases = ((EVERY_ROW, Hidden()),)


@dataclass(frozen=True)
class ColumnView:
    """How a column is shown: by the mask of the first case that a row is among. The last case is every row."""

    name: str
    cases: Cases


@dataclass(frozen=True)
class RowView:
    """The rows and columns that a sender sees of a table in one of its states."""

    rows: Predicate
    schema: TableSchema
    """The columns that are not hidden, in the table's order."""
    masked: Mapping[str, ColumnView]
    """Those of them that are masked in some row, by name."""

    @property
    def unmasked(self) -> frozenset[str]:
        """The columns whose values are shown in every row."""
        return frozenset(self.schema.names) - self.masked.keys()


@dataclass(frozen=True)
class State:
    """A state of a table: its columns, and the name that each of them has now; None for one that was dropped since."""

    schema: TableSchema
    now: Mapping[str, str | None]

    @classmethod
    def of_now(cls, schema: TableSchema) -> "State":
        return cls(schema, {name: name for name in schema.names})


def view_of(
    policy: TablePolicy, roles: Collection[str], attributes: AttributeValues, schema: TableSchema, state: State
) -> RowView | None:
    """What a sender with these roles sees of a state of a table that has the columns `schema` now; None if that is all
    of it. Forbidden if the policy does not fit the columns."""
    try:
        policy.check(schema)
    except InvalidRequest as e:
        raise Forbidden(BROKEN, field="table") from e
    held = [rule for role, rule in sorted(policy.rules.items()) if role in roles]
    if any(rule.shows_all for rule in held):
        return None
    then = {now: name for name, now in state.now.items() if now is not None}
    shown: list[_Rule] = []
    for rule in held or policy.rules.values():
        rows = rows_of(rule, schema, attributes) if held else NO_ROW
        if not columns_in(rows) <= then.keys():
            raise Forbidden(NOT_THEN, field="table")
        shown.append((renamed(rows, then), masks_of(rule, schema, policy.salt)))
    fields, masked = [], {}
    for field in state.schema.fields:
        cases = _cases(shown, state.now.get(field.name))
        if cases == _SHOWN:
            fields.append(field)
        elif cases != _HIDDEN:
            fields.append(Field(field.name, field.type))
            masked[field.name] = ColumnView(field.name, cases)
    names = {field.name for field in fields}
    key = state.schema.primary_key if names - masked.keys() >= set(state.schema.primary_key) else ()
    return RowView(Or(tuple(rows for rows, _ in shown)), TableSchema(tuple(fields), key), masked)


def _cases(shown: list[_Rule], now: str | None) -> Cases:
    """How a column is shown, the most open mask first. A column that was dropped since is hidden."""
    by_mask: dict[Mask, list[Predicate]] = {}
    for rows, masks in shown:
        mask = Hidden() if now is None else masks.get(now, Unmasked())
        by_mask.setdefault(mask, []).append(rows)
    *before, last = sorted(by_mask, key=lambda mask: mask.rank)
    cases: list[tuple[Predicate, Mask]] = [(Or(tuple(by_mask[mask])), mask) for mask in before]
    return (*cases, (EVERY_ROW, Null() if before and isinstance(last, Hidden) else last))
