"""Derived columns: each has an expression over the other columns, which computes it for rows without a value."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import FirnError, InvalidRequest, InvalidSchema
from service.model.expressions import Expression, parse_expression
from service.model.schema.columns import Resolver, columns_of
from service.model.schema.definition import check_column_name
from service.model.schema.types import ColumnType, Field, TableSchema, fold_case

log = logging.getLogger("firn.derived")
DERIVED_PREFIX = "firn.derived."


@dataclass(frozen=True)
class DerivedColumn:
    """A column that is computed if a row has no value for it. Its type is None until the engine has found it."""

    column: str
    expression: Expression
    type: ColumnType | None = None


def derived_expressions(properties: Mapping[str, str]) -> dict[str, str]:
    """A table's derived columns with the text of their expressions."""
    return {
        key.removeprefix(DERIVED_PREFIX): text for key, text in properties.items() if key.startswith(DERIVED_PREFIX)
    }


def derived_of(properties: Mapping[str, str], schema: TableSchema) -> tuple[DerivedColumn, ...]:
    """A table's derived columns, from its Iceberg properties, without those that can no longer be computed."""
    texts = derived_expressions(properties)
    if not texts:
        return ()
    resolve = columns_of(_given(schema, texts))
    found: list[DerivedColumn] = []
    for field in schema.fields:
        if field.name not in texts:
            continue
        try:
            path = f"the derived column {field.name!r}"
            found.append(
                DerivedColumn(
                    field.name, parse_expression(texts[field.name], resolve, path, InvalidRequest), field.type
                )
            )
        except FirnError as e:
            log.warning("the derived column %r can no longer be computed: %s", field.name, e.message)
    return tuple(found)


def parse_transform(
    value: Mapping[str, Any], schema: TableSchema, properties: Mapping[str, str], path: str = "transform"
) -> tuple[DerivedColumn, ...]:
    """The derived columns that a request adds, without those that the table already has with the same expression."""
    texts = derived_expressions(properties)
    resolve = columns_of(_given(schema, texts))
    found: list[DerivedColumn] = []
    for name, definition in value.items():
        where = f"{path}.{name}"
        text = _expression(definition, where)
        if texts.get(name) == text and name in schema.names:
            continue
        check_column_name(name, path)
        _refuse_known(name, schema, texts, where)
        _refuse_twice(name, found, where)
        found.append(DerivedColumn(name, parse_expression(text, resolve, f"{where}.expression", InvalidRequest)))
    return tuple(found)


def add_derived(schema: TableSchema, derived: tuple[DerivedColumn, ...]) -> TableSchema:
    """The schema with the derived columns of known types added at the end."""
    fields = (Field(one.column, one.type) for one in derived if one.type is not None)
    return TableSchema((*schema.fields, *fields), schema.primary_key)


def only_derived_since(schema: TableSchema, earlier: TableSchema, derived: tuple[DerivedColumn, ...]) -> bool:
    """Whether a table has only gained derived columns since: rows that fitted the earlier schema still fit."""
    count = len(earlier.fields)
    new = {field.name for field in schema.fields[count:]}
    return schema.fields[:count] == earlier.fields and new <= {one.column for one in derived}


def check_evolved(properties: Mapping[str, str], before: TableSchema, after: TableSchema) -> None:
    """Refuse a change of columns after which a derived column could no longer be computed."""
    texts = derived_expressions(properties)
    old, new = columns_of(_given(before, texts)), columns_of(_given(after, texts))
    for name in after.names:
        if name in texts and _works(texts[name], old) and not _works(texts[name], new):
            raise InvalidSchema(
                f"the derived column {name!r} is computed by {texts[name]!r}, which would no longer work; drop that "
                "column too, or keep the columns it is computed from",
                field=name,
            )


def _works(text: str, resolve: Resolver) -> bool:
    try:
        parse_expression(text, resolve, "expression", InvalidRequest)
    except FirnError:
        return False
    return True


def derived_properties(derived: tuple[DerivedColumn, ...]) -> dict[str, str]:
    """The Iceberg properties that hold the expressions."""
    return {DERIVED_PREFIX + one.column: one.expression.text for one in derived}


def _given(schema: TableSchema, derived: Mapping[str, str]) -> TableSchema:
    """The columns that expressions may name: no derived ones, which do not have their values yet."""
    return TableSchema(tuple(field for field in schema.fields if field.name not in derived))


def _expression(definition: Any, where: str) -> Any:
    if not isinstance(definition, Mapping) or set(definition) != {"expression"}:
        raise InvalidRequest(f'{where} must be an object such as {{"expression": "CAST(at AS date)"}}', field=where)
    return definition["expression"]


def _refuse_known(name: str, schema: TableSchema, derived: Mapping[str, str], where: str) -> None:
    known = next((column for column in schema.names if fold_case(column) == fold_case(name)), None)
    if known is None:
        return
    how = f", derived by {derived[known]!r}" if known in derived else ""
    raise InvalidSchema(f"{where}: the table already has a column {known!r}{how}; choose another name", field=where)


def _refuse_twice(name: str, before: list[DerivedColumn], where: str) -> None:
    other = next((one.column for one in before if fold_case(one.column) == fold_case(name)), None)
    if other is not None:
        raise InvalidSchema(
            f"{where}: {other!r} and {name!r} differ only in case, which Spark does not tell apart; rename one",
            field=where,
        )
