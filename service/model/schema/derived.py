"""Derived columns: each has an expression over the others, by which rows that lack its value get one."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.columns import Resolver, columns_of
from service.errors import FirnError, InvalidRequest, InvalidSchema
from service.expressions import Expression, parse_expression
from service.schema import ColumnType, Field, TableSchema, check_column_name, folded

log = logging.getLogger("firn.derived")
PREFIX = "firn.derived."


@dataclass(frozen=True)
class Derived:
    """A column that is worked out where it is not given. Its type is None until the engine has said it."""

    column: str
    expression: Expression
    type: ColumnType | None = None


def described(properties: Mapping[str, str]) -> dict[str, str]:
    """A table's derived columns and their expressions, as they were given."""
    return {key.removeprefix(PREFIX): text for key, text in properties.items() if key.startswith(PREFIX)}


def derived_of(properties: Mapping[str, str], schema: TableSchema) -> tuple[Derived, ...]:
    """A table's derived columns, by its Iceberg properties. One that cannot be worked out any more is left as it is."""
    texts = described(properties)
    if not texts:
        return ()
    resolve = columns_of(_given(schema, texts))
    found: list[Derived] = []
    for field in schema.fields:
        if field.name not in texts:
            continue
        try:
            path = f"the derived column {field.name!r}"
            found.append(
                Derived(field.name, parse_expression(texts[field.name], resolve, path, InvalidRequest), field.type)
            )
        except FirnError as e:
            log.warning("the derived column %r can no longer be worked out: %s", field.name, e.message)
    return tuple(found)


def parse_transform(
    value: Mapping[str, Any], schema: TableSchema, properties: Mapping[str, str], path: str = "transform"
) -> tuple[Derived, ...]:
    """The columns that a request wants to be added; those that the table has by the same expression are left out."""
    texts = described(properties)
    resolve = columns_of(_given(schema, texts))
    found: list[Derived] = []
    for name, definition in value.items():
        where = f"{path}.{name}"
        text = _expression(definition, where)
        if texts.get(name) == text and name in schema.names:
            continue
        check_column_name(name, path)
        _refuse_known(name, schema, texts, where)
        _refuse_twice(name, found, where)
        found.append(Derived(name, parse_expression(text, resolve, f"{where}.expression", InvalidRequest)))
    return tuple(found)


def with_derived(schema: TableSchema, derived: tuple[Derived, ...]) -> TableSchema:
    """A table's schema with columns of known types added at its end."""
    fields = (Field(one.column, one.type) for one in derived if one.type is not None)
    return TableSchema((*schema.fields, *fields), schema.primary_key)


def only_derived_since(schema: TableSchema, earlier: TableSchema, derived: tuple[Derived, ...]) -> bool:
    """Whether a table has got nothing but derived columns since: rows that fitted it then lack nothing of their own."""
    count = len(earlier.fields)
    new = {field.name for field in schema.fields[count:]}
    return schema.fields[:count] == earlier.fields and new <= {one.column for one in derived}


def check_evolved(properties: Mapping[str, str], before: TableSchema, after: TableSchema) -> None:
    """Refuse a change of columns after which a derived column could no longer be worked out."""
    texts = described(properties)
    old, new = columns_of(_given(before, texts)), columns_of(_given(after, texts))
    for name in after.names:
        if name in texts and _works(texts[name], old) and not _works(texts[name], new):
            raise InvalidSchema(
                f"the derived column {name!r} is worked out by {texts[name]!r}, which would no longer work; drop that "
                "column too, or leave those that it is made of",
                field=name,
            )


def _works(text: str, resolve: Resolver) -> bool:
    try:
        parse_expression(text, resolve, "expression", InvalidRequest)
    except FirnError:
        return False
    return True


def written(derived: tuple[Derived, ...]) -> dict[str, str]:
    """The Iceberg properties that keep the expressions."""
    return {PREFIX + one.column: one.expression.text for one in derived}


def _given(schema: TableSchema, derived: Mapping[str, str]) -> TableSchema:
    """What expressions may name: a derived column is not there yet when others are worked out."""
    return TableSchema(tuple(field for field in schema.fields if field.name not in derived))


def _expression(definition: Any, where: str) -> Any:
    if not isinstance(definition, Mapping) or set(definition) != {"expression"}:
        raise InvalidRequest(f'{where} must be an object such as {{"expression": "CAST(at AS date)"}}', field=where)
    return definition["expression"]


def _refuse_known(name: str, schema: TableSchema, derived: Mapping[str, str], where: str) -> None:
    known = next((column for column in schema.names if folded(column) == folded(name)), None)
    if known is None:
        return
    how = f", derived by {derived[known]!r}" if known in derived else ""
    raise InvalidSchema(f"{where}: the table has a column {known!r} already{how}; choose another name", field=where)


def _refuse_twice(name: str, before: list[Derived], where: str) -> None:
    other = next((one.column for one in before if folded(one.column) == folded(name)), None)
    if other is not None:
        raise InvalidSchema(
            f"{where}: {other!r} and {name!r} differ only in case, and Spark tells no such names apart; rename one",
            field=where,
        )
