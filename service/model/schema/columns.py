"""Find the column that a request names. Dots address the fields of structs and the values of maps."""

from collections.abc import Callable
from dataclasses import dataclass

from service.errors import UnknownField
from service.model.schema.types import ColumnType, Map, Primitive, Struct, TableSchema


@dataclass(frozen=True, slots=True)
class MapKey:
    """A step to the value that a map has under this key."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column or nested value: its name in the request, and the steps that lead there.

    The first step is a column's name, the others are fields of structs or keys of maps. `qualifier` is the table's
    alias in a query of several tables.
    """

    name: str
    steps: tuple[str | MapKey, ...]
    type: ColumnType
    qualifier: str | None = None


Resolver = Callable[[str, str], Column]
"""Finds a column by its name, given the place of the name in the request; raises UnknownField."""


def columns_of(schema: TableSchema, qualifier: str | None = None) -> Resolver:
    """A resolver for the columns of one table."""

    def resolve(name: str, path: str) -> Column:
        found = find_column(schema, name, qualifier)
        if found is None:
            raise UnknownField.unknown(path, name, "a column here", known_names(schema))
        return found

    return resolve


def find_column(schema: TableSchema, name: str, qualifier: str | None = None) -> Column | None:
    """The column of a dotted name, if there is one."""
    # Other engines allow dots in a column's own name.
    whole = next((f for f in (*schema.fields, *schema.internal) if f.name == name), None)
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


def known_names(of: TableSchema | Struct, parent: str = "") -> list[str]:
    """The names of all columns and nested fields, without the keys of maps."""
    names = []
    for field in of.fields:
        names.append(parent + field.name)
        if isinstance(field.type, Struct):
            names += known_names(field.type, f"{parent}{field.name}.")
    return names
