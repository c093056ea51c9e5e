"""A column as a request names it: dots reach into structs and take a map's value by its key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.errors import UnknownField
from service.schema import ColumnType, Field, Map, Primitive, Struct, TableSchema, hint


@dataclass(frozen=True, slots=True)
class Key:
    """A step to the value that a map holds under this key."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """Where a value is found: `name` as the request has it, and the steps that lead there.

    The first step is a column's name, the others are fields of structs or keys of maps. `qualifier` is the table's
    alias where a query reads several.
    """

    name: str
    steps: tuple[str | Key, ...]
    type: ColumnType
    qualifier: str | None = None


Resolver = Callable[[str, str], Column]
"""Finds the column of a name, for the request's path it stands at; UnknownField where there is none."""


def columns_of(schema: TableSchema, qualifier: str | None = None) -> Resolver:
    """The names of one table's columns."""

    def resolve(name: str, path: str) -> Column:
        found = find(schema, name, qualifier)
        if found is None:
            raise unknown(name, known_names(schema), path)
        return found

    return resolve


def find(schema: TableSchema, name: str, qualifier: str | None = None) -> Column | None:
    """The column a dotted name leads to, if there is one."""
    # A table made elsewhere may have dots in a column's own name.
    whole = next((f for f in schema.fields if f.name == name), None)
    if whole:
        return Column(name, (name,), whole.type, qualifier)
    first, *rest = name.split(".")
    top = next((f for f in schema.fields if f.name == first), None)
    if top is None:
        return None
    steps: list[str | Key] = [first]
    kind: ColumnType = top.type
    for part in rest:
        field = next((f for f in kind.fields if f.name == part), None) if isinstance(kind, Struct) else None
        if field:
            steps.append(part)
            kind = field.type
        elif isinstance(kind, Map) and kind.key == Primitive("string") and part:
            steps.append(Key(part))
            kind = kind.value
        else:
            return None
    return Column(name, tuple(steps), kind, qualifier)


def known_names(schema: TableSchema) -> list[str]:
    """Every name that dots can reach, but for the keys of maps."""
    return list(_names(schema.fields, ""))


def unknown(name: str, known: list[str], path: str) -> UnknownField:
    near, words = hint(name, known)
    return UnknownField(f"{path}: {name[:80]!r} is not a column here; {words}", field=path, suggestion=near)


def _names(fields: tuple[Field, ...], parent: str) -> Iterator[str]:
    for field in fields:
        yield parent + field.name
        if isinstance(field.type, Struct):
            yield from _names(field.type.fields, f"{parent}{field.name}.")
