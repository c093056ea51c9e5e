"""Derived columns: each is computed from other columns by an expression, for rows that have no value for it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import FirnError, InvalidRequest, InvalidSchema
from service.model.expressions import Expression, parse_expression
from service.model.schema.columns import Resolver, columns_of
from service.model.schema.definition import check_column_name, refuse_same_names
from service.model.schema.types import ColumnType, Field, TableSchema, fold_case

log = logging.getLogger("firn.derived")
DERIVED_PREFIX = "firn.derived."


@dataclass(frozen=True)
class DerivedColumn:
    """A column that is computed if a row has no value for it. Its type is None until the engine has determined it."""

    column: str
    expression: Expression
    type: ColumnType | None = None


def derived_expressions(properties: Mapping[str, str]) -> dict[str, str]:
    """The expressions of a table's derived columns, by column."""
    return {k.removeprefix(DERIVED_PREFIX): text for k, text in properties.items() if k.startswith(DERIVED_PREFIX)}


def derived_of(properties: Mapping[str, str], schema: TableSchema) -> tuple[DerivedColumn, ...]:
    """A table's derived columns, from its Iceberg properties, without those that can no longer be computed."""
    texts = derived_expressions(properties)
    resolve = _base_columns(schema, texts)
    found: list[DerivedColumn] = []
    for field in schema.fields:
        if field.name in texts:
            path = f"the derived column {field.name!r}"
            try:
                expression = parse_expression(texts[field.name], resolve, path, InvalidRequest)
            except FirnError as e:
                log.warning("the derived column %r can no longer be computed: %s", field.name, e.message)
            else:
                found.append(DerivedColumn(field.name, expression, field.type))
    return tuple(found)


def parse_transform(
    value: Mapping[str, Any], schema: TableSchema, properties: Mapping[str, str], path: str = "transform"
) -> tuple[DerivedColumn, ...]:
    """The derived columns that a request adds, without those that the table already has with the same expression."""
    texts = derived_expressions(properties)
    resolve = _base_columns(schema, texts)
    found: list[DerivedColumn] = []
    for name, definition in value.items():
        where = f"{path}.{name}"
        text = _expression(definition, where)
        if texts.get(name) == text and name in schema.names:
            continue
        check_column_name(name, path)
        _refuse_existing(name, schema, texts, where)
        found.append(DerivedColumn(name, parse_expression(text, resolve, f"{where}.expression", InvalidRequest)))
    refuse_same_names((one.column for one in found), f"{path}.")
    return tuple(found)


def add_derived(schema: TableSchema, derived: tuple[DerivedColumn, ...]) -> TableSchema:
    """The schema with the derived columns of known types added at the end."""
    fields = (Field(one.column, one.type) for one in derived if one.type is not None)
    return TableSchema((*schema.fields, *fields), schema.primary_key)


def only_derived_added(schema: TableSchema, earlier: TableSchema, derived: tuple[DerivedColumn, ...]) -> bool:
    """Whether a table has only gained derived columns since, so that rows of the earlier schema still fit."""
    count = len(earlier.fields)
    new = {field.name for field in schema.fields[count:]}
    return schema.fields[:count] == earlier.fields and new <= {one.column for one in derived}


def check_evolved(properties: Mapping[str, str], before: TableSchema, after: TableSchema) -> None:
    """Refuse a change of columns after which a derived column can no longer be computed."""
    texts = derived_expressions(properties)
    old, new = _base_columns(before, texts), _base_columns(after, texts)
    for name in after.names:
        if name in texts and _is_valid(texts[name], old) and not _is_valid(texts[name], new):
            raise InvalidSchema(
                f"the derived column {name!r} could no longer be computed by {texts[name]!r}; drop that column too, or "
                "keep the columns that it is computed from",
                field=name,
            )


def _is_valid(text: str, resolve: Resolver) -> bool:
    try:
        parse_expression(text, resolve, "expression", InvalidRequest)
    except FirnError:
        return False
    return True


def derived_properties(derived: tuple[DerivedColumn, ...]) -> dict[str, str]:
    """The Iceberg properties that store the expressions."""
    return {DERIVED_PREFIX + one.column: one.expression.text for one in derived}


def _base_columns(schema: TableSchema, derived: Mapping[str, str]) -> Resolver:
    """A resolver for the columns that expressions may use: no derived ones, which have no values yet."""
    return columns_of(TableSchema(tuple(field for field in schema.fields if field.name not in derived)))


def _expression(definition: Any, where: str) -> Any:
    if not isinstance(definition, Mapping) or set(definition) != {"expression"}:
        raise InvalidRequest.at(where, 'expected an object such as {"expression": "CAST(at AS date)"}')
    return definition["expression"]


def _refuse_existing(name: str, schema: TableSchema, derived: Mapping[str, str], where: str) -> None:
    for known in schema.names:
        if fold_case(known) == fold_case(name):
            how = f", derived by {derived[known]!r}" if known in derived else ""
            raise InvalidSchema.at(where, f"the table already has a column {known!r}{how}; choose another name")
