"""Find the column that a request names; dots reach into structs, and into a map's value by its key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.errors import UnknownField, did_you_mean
from service.model.schema.types import ColumnType, Field, Map, Primitive, Struct, TableSchema


@dataclass(frozen=True, slots=True)
class MapKey:
    """A step to a map's value under this key."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column or nested value: `name` as in the request, and the steps that lead there.

    The first step is a column's name, the others are fields of structs or keys of maps. `qualifier` is the table's
    alias in a query that reads several tables.
    """

    name: str
    steps: tuple[str | MapKey, ...]
    type: ColumnType
    qualifier: str | None = None


Resolver = Callable[[str, str], Column]
"""Finds the column of a name, given the name's place in the request; raises UnknownField."""


def columns_of(schema: TableSchema, qualifier: str | None = None) -> Resolver:
    """A resolver for the columns of one table."""

    def resolve(name: str, path: str) -> Column:
        found = find_column(schema, name, qualifier)
        if found is None:
            raise unknown_column(name, known_names(schema), path)
        return found

    return resolve


def find_column(schema: TableSchema, name: str, qualifier: str | None = None) -> Column | None:
    """The column that a dotted name leads to, if there is one."""
    # Other engines allow dots in a column's own name.
    whole = next((f for f in schema.fields if f.name == name), None)
    if whole:
        return Column(name, (name,), whole.type, qualifier)
    first, *rest = name.split(".")
    top = next((f for f in schema.fields if f.name == first), None)
    if top is None:
        return None
    steps: list[str | MapKey] = [first]
    kind: ColumnType = top.type
    for part in rest:
        field = next((f for f in kind.fields if f.name == part), None) if isinstance(kind, Struct) else None
        if field:
            steps.append(part)
            kind = field.type
        elif isinstance(kind, Map) and kind.key == Primitive("string") and part:
            steps.append(MapKey(part))
            kind = kind.value
        else:
            return None
    return Column(name, tuple(steps), kind, qualifier)


def known_names(schema: TableSchema) -> list[str]:
    """Every name that dots can reach, without the keys of maps."""
    return list(_names(schema.fields, ""))


def unknown_column(name: str, known: list[str], path: str) -> UnknownField:
    near, words = did_you_mean(name, known)
    return UnknownField(f"{path}: {name[:80]!r} is not a column here; {words}", field=path, suggestion=near)


def _names(fields: tuple[Field, ...], parent: str) -> Iterator[str]:
    for field in fields:
        yield parent + field.name
        if isinstance(field.type, Struct):
            yield from _names(field.type.fields, f"{parent}{field.name}.")
