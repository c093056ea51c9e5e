"""Column types, columns and schemas as plain values."""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TypeAlias

from service.errors import FirnError, UnknownField, did_you_mean
from service.model.names import INGEST_COLUMNS, RESERVED_COLUMN_PREFIX

PRIMITIVES = (
    *("string", "integer", "long", "float", "double", "boolean"),
    *("date", "timestamp", "timestamptz", "binary", "uuid"),
)
FLOATING = ("float", "double")
_ORDERED = ("string", "integer", "long", "date", "timestamp", "timestamptz")


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type that is only a name, one of PRIMITIVES."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    items: "ColumnType"
    items_required: bool = False

    def __str__(self) -> str:
        return f"array<{self.items}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: "ColumnType"
    value: "ColumnType"
    value_required: bool = False

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: "tuple[Field, ...]"

    def __str__(self) -> str:
        return f"struct<{','.join(f'{f.name}:{f.type}' for f in self.fields)}>"


ColumnType: TypeAlias = Primitive | DecimalType | Array | Map | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field inside a struct."""

    name: str
    type: ColumnType
    required: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    fields: tuple[Field, ...]
    primary_key: tuple[str, ...] = ()
    hidden: bool = dataclass_field(default=False, compare=False)
    """Whether the table also has internal columns of Firn, which are not in `fields`."""
    internal: tuple[Field, ...] = dataclass_field(default=(), compare=False)
    """Those of the internal columns that requests can name, although no response shows them unless it is asked to."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str, *, error: type[FirnError] = UnknownField, path: str | None = None) -> Field:
        """The top-level column of this name; `error`, with the nearest name, if there is none."""
        return _find(self.fields, name, "", error, path)


def without_hidden_columns(schema: TableSchema) -> TableSchema:
    """The columns without Firn's internal ones, which no request names and no response shows."""
    shown = tuple(field for field in schema.fields if not field.name.lower().startswith(RESERVED_COLUMN_PREFIX))
    if len(shown) == len(schema.fields):
        return schema
    internal = tuple(field for field in schema.fields if field.name in INGEST_COLUMNS)
    return TableSchema(shown, schema.primary_key, hidden=True, internal=internal)


def resolve_field(
    schema: TableSchema, name: str, *, error: type[FirnError] = UnknownField, path: str | None = None
) -> Field:
    """The column or nested field of a dotted name; it is required only if all its parents are.

    `path` is the place of the name in the request; an unknown name raises `error`.
    """
    # Other engines allow dots in a column's own name.
    whole = next((f for f in schema.fields if f.name == name), None)
    if whole:
        return whole
    fields, required, seen = schema.fields, True, ""
    *parents, last = name.split(".")
    for part in parents:
        parent = _find(fields, part, seen, error, path)
        seen += f"{part}."
        required = required and parent.required
        if not isinstance(parent.type, Struct):
            problem = f"{name[:80]!r} is not a column: {seen[:-1]!r} is {parent.type}, and only a struct has fields"
            raise error.at(path or name, problem, seen[:-1])
        fields = parent.type.fields
    found = _find(fields, last, seen, error, path)
    return Field(name, found.type, required and found.required)


def is_floating(kind: ColumnType) -> bool:
    return isinstance(kind, Primitive) and kind.name in FLOATING


def has_uuid(schema: TableSchema) -> bool:
    """Whether a column is a uuid, or a struct that contains one."""
    return any(contains_uuid(field.type) for field in schema.fields)


def contains_uuid(kind: ColumnType) -> bool:
    """Whether values of the type are uuids, or structs that contain one."""
    if isinstance(kind, Struct):
        return any(contains_uuid(field.type) for field in kind.fields)
    return kind == Primitive("uuid")


def has_order(kind: ColumnType) -> bool:
    """Whether files can be skipped by the least and greatest values of a type, and Arrow sorts these as Spark does."""
    return isinstance(kind, DecimalType) or str(kind) in _ORDERED


def fold_case(name: str) -> str:
    """Names with the same folded form are the same name to Spark, which compares like Java's equalsIgnoreCase."""
    upper = (c.upper() if len(c.upper()) == 1 else c for c in name)
    return "".join(c.lower()[0] for c in upper)


def _find(fields: tuple[Field, ...], name: str, parent: str, error: type[FirnError], path: str | None) -> Field:
    for field in fields:
        if field.name == name:
            return field
    near, hint = did_you_mean(name, [f.name for f in fields])
    problem = f"{parent + name[:80]!r} is not a column of this table; {hint}"
    raise error.at(path or parent + name, problem, parent + near if near else None)
