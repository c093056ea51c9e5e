"""Column types: what a table's schema may say, read from JSON and described as the same JSON again."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, TypeAlias

from service.errors import FirnError, InvalidSchema, UnknownField, nearest
from service.names import RESERVED_COLUMN_PREFIX

PRIMITIVES = (
    *("string", "integer", "long", "float", "double", "boolean"),
    *("date", "timestamp", "timestamptz", "binary", "uuid"),
)
FLOATING = ("float", "double")
MAX_PRECISION = 38
MAX_DEPTH = 32
MAX_NAME = 255

# What Iceberg shows beside a table's columns: a table that has such a column itself cannot be read.
_METADATA_COLUMNS = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
_DECIMAL = re.compile(r"decimal\s*\(\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*\)")
_TYPE_NAMES = (*PRIMITIVES, "decimal(p,s)", "array", "map", "struct")
_OTHER_SYSTEMS = {
    "int": "integer",
    "int32": "integer",
    "smallint": "integer",
    "bigint": "long",
    "int64": "long",
    "real": "float",
    "number": "double",
    "float64": "double",
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "varchar": "string",
    "datetime": "timestamp",
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamptz",
    "bytes": "binary",
    "decimal": "decimal(10,2)",
    "numeric": "decimal(10,2)",
    "list": "array",
    "object": "struct",
    "dict": "map",
}
_EVERY_TYPE = ("type", "required", "nullable")
_KEYS_OF = {"array": ("items",), "map": ("key_type", "value_type"), "struct": ("fields",)}
_BELONGS_TO = {key: kind for kind, keys in _KEYS_OF.items() for key in keys}


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
    """Whether the table has columns beside these, of Firn's own."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str, *, error: type[FirnError] = UnknownField, path: str | None = None) -> Field:
        """The top-level column of that name, or a refusal with the nearest one."""
        return _find(self.fields, name, "", error, path)


def visible(schema: TableSchema) -> TableSchema:
    """A table's columns without those of Firn's own, which no request names and no answer shows."""
    if not any(field.name.lower().startswith(RESERVED_COLUMN_PREFIX) for field in schema.fields):
        return schema
    shown = (field for field in schema.fields if not field.name.lower().startswith(RESERVED_COLUMN_PREFIX))
    return TableSchema(tuple(shown), schema.primary_key, hidden=True)


def resolve(schema: TableSchema, name: str, *, error: type[FirnError] = UnknownField, path: str | None = None) -> Field:
    """The column or nested field a dotted name means, under that whole name; required only if its parents all are.

    `path` is where the name stands in the request; `error` is what an unknown name raises.
    """
    # A table made elsewhere may have dots in a column's own name.
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
            raise error(
                f"{_at(path)}{name[:80]!r} looks inside {seen[:-1]!r}, which is {parent.type} and has no fields; "
                "dots reach into structs only",
                field=path or name,
                suggestion=seen[:-1],
            )
        fields = parent.type.fields
    found = _find(fields, last, seen, error, path)
    return Field(name, found.type, required and found.required)


def has_uuid(schema: TableSchema) -> bool:
    """Whether a column is a uuid, or a struct that holds one."""
    return any(holds_uuid(field.type) for field in schema.fields)


def holds_uuid(kind: ColumnType) -> bool:
    """Whether values of the type are uuids, or structs that hold one."""
    if isinstance(kind, Struct):
        return any(holds_uuid(field.type) for field in kind.fields)
    return kind == Primitive("uuid")


def parse_schema(value: Any, path: str = "schema") -> TableSchema:
    """The schema a JSON value describes, or InvalidSchema with the path of what is wrong."""
    keys = _object(value, path, ("fields", "primary_key"))
    fields = _fields(keys.get("fields"), f"{path}.fields", 1)
    key = _primary_key(keys.get("primary_key"), fields, f"{path}.primary_key")
    return TableSchema(tuple(Field(f.name, f.type, f.required or f.name in key) for f in fields), key)


def parse_field(name: str, definition: Any, path: str, at: str, *, nested: bool) -> Field:
    """One column, or a field inside a struct, by its definition as `fields` has it; `path` and `at` are where its name
    and that stand."""
    check_column_name(name, path, nested=nested)
    return Field(name, *_definition(definition, at, 1))


def parse_leaf(value: Any, path: str) -> ColumnType:
    """A type that is only a name, such as `long` or `decimal(10,2)`."""
    return _leaf(value, path)


def check_key(value: Any, fields: tuple[Field, ...], path: str) -> tuple[str, ...]:
    """A primary key over columns that are there already; they must be such as are never null."""
    key = _primary_key(value, fields, path)
    for i, name in enumerate(key):
        if not next(f for f in fields if f.name == name).required:
            raise InvalidSchema(
                f"{path}[{i}]: {name!r} may be null, also in rows that are there; a key's columns are required",
                field=f"{path}[{i}]",
            )
    return key


def describe_schema(schema: TableSchema) -> dict[str, Any]:
    """The JSON form that parses to this schema."""
    described: dict[str, Any] = {"fields": _describe_fields(schema.fields)}
    if schema.primary_key:
        described["primary_key"] = list(schema.primary_key)
    return described


def check_column_name(name: Any, path: str, *, nested: bool = False) -> str:
    """The name itself, or a refusal that says what a column, or a field inside a struct, may be called."""
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"{path} holds a name that is empty or no text; name every column", field=path)
    shown = f"{path}: {name[:80]!r}"
    if len(name) > MAX_NAME:
        raise InvalidSchema(f"{shown}… has {len(name)} characters; a name has at most {MAX_NAME}", field=path)
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidSchema(f"{shown} holds a control character; use visible characters", field=path)
    if "." in name or "`" in name:
        raise InvalidSchema(f"{shown} holds a dot or a backquote; dots address nested fields, so use '_'", field=path)
    if name.lower().startswith(RESERVED_COLUMN_PREFIX):
        raise InvalidSchema(f"{shown} begins with {RESERVED_COLUMN_PREFIX!r}, which is reserved", field=path)
    if not nested and folded(name) in _METADATA_COLUMNS:
        raise InvalidSchema(
            f"{shown} is one of Iceberg's metadata columns, and a table that has it too cannot be read; choose another "
            "name",
            field=path,
        )
    return name


def folded(name: str) -> str:
    """Names that fold alike are one name to Spark, which compares as Java's equalsIgnoreCase does."""
    upper = (c.upper() if len(c.upper()) == 1 else c for c in name)
    return "".join(c.lower()[0] for c in upper)


def hint(name: str, known: Iterable[str]) -> tuple[str | None, str]:
    """The nearest known name, and the words that offer it or list what there is."""
    names = list(known)
    near = nearest(name, names)
    if near:
        return near, f"did you mean {near!r}?"
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return None, f"known are {listed}"


def _at(path: str | None) -> str:
    return f"{path}: " if path else ""


def _find(fields: tuple[Field, ...], name: str, parent: str, error: type[FirnError], path: str | None) -> Field:
    for field in fields:
        if field.name == name:
            return field
    near, words = hint(name, [f.name for f in fields])
    raise error(
        f"{_at(path)}{parent + name[:80]!r} is not a column of this table; {words}",
        field=path or parent + name,
        suggestion=parent + near if near else None,
    )


def _object(value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidSchema(f"{path} must be an object, not {_kind(value)}", field=path)
    for key in value:
        if key not in known:
            near, words = hint(str(key), known)
            where = f"{path}.{str(key)[:80]}"
            raise InvalidSchema(f"{where} is not known here; {words}", field=where, suggestion=near)
    return {k: v for k, v in value.items() if v is not None}


def _fields(value: Any, path: str, depth: int) -> tuple[Field, ...]:
    if not isinstance(value, Mapping) or not value:
        raise InvalidSchema(
            f'{path} must be an object with at least one column, such as {{"id": {{"type": "long"}}}}', field=path
        )
    seen: dict[str, str] = {}
    fields = []
    for name, definition in value.items():
        check_column_name(name, path, nested=depth > 1)
        if folded(name) in seen:
            raise InvalidSchema(
                f"{path}: {seen[folded(name)]!r} and {name!r} differ only in case, and Spark tells no such names "
                "apart; rename one",
                field=f"{path}.{name}",
            )
        seen[folded(name)] = name
        fields.append(Field(name, *_definition(definition, f"{path}.{name}", depth)))
    return tuple(fields)


def _definition(value: Any, path: str, depth: int) -> tuple[ColumnType, bool]:
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"{path} is nested more than {MAX_DEPTH} deep (a map counts twice); flatten it", field=path)
    if isinstance(value, str):
        raise InvalidSchema(f'{path} must be an object; send {{"type": "{value[:80]}"}}', field=path)
    keys = _object(value, path, (*_EVERY_TYPE, *_BELONGS_TO))
    name = keys.get("type")
    for key in keys:
        if key in _BELONGS_TO and isinstance(name, str) and name in _TYPE_NAMES and _BELONGS_TO[key] != name:
            kind = _BELONGS_TO[key]
            raise InvalidSchema(f"{path}.{key} belongs to type {kind}, not {name}; remove it", field=f"{path}.{key}")
    return _type(name, keys, path, depth), _required(keys, path)


def _required(keys: Mapping[str, Any], path: str) -> bool:
    for key in ("required", "nullable"):
        if not isinstance(keys.get(key, False), bool):
            raise InvalidSchema(
                f"{path}.{key} must be true or false, not {_kind(keys[key])}",
                field=f"{path}.{key}",
            )
    required = bool(keys.get("required", not keys.get("nullable", True)))
    if "nullable" in keys and keys["nullable"] == required:
        raise InvalidSchema(
            f"{path} says required {str(required).lower()} and nullable {str(required).lower()}, which contradict "
            "each other; send one of them",
            field=f"{path}.nullable",
        )
    return required


def _type(name: Any, keys: Mapping[str, Any], path: str, depth: int) -> ColumnType:
    if name is None:
        raise InvalidSchema(f"{path}.type is missing; known are {', '.join(_TYPE_NAMES)}", field=f"{path}.type")
    if name == "struct":
        return Struct(_fields(keys.get("fields"), f"{path}.fields", depth + 1))
    if name == "array":
        return Array(*_element(keys, "items", path, depth + 1))
    if name == "map":
        # Two levels in Arrow, and each doubles what Spark generates to write a row.
        return _map(keys, path, depth + 2)
    return _leaf(name, f"{path}.type")


def _leaf(name: Any, path: str) -> ColumnType:
    if not isinstance(name, str):
        raise InvalidSchema(f"{path} must be a type's name, not {_kind(name)}", field=path)
    if name in PRIMITIVES:
        return Primitive(name)
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            raise InvalidSchema(
                f"{path}: {name[:80]!r} cannot be; the precision is 1 to {MAX_PRECISION}, the scale 0 to the precision",
                field=path,
            )
        return DecimalType(precision, scale)
    if name.startswith("decimal"):
        raise InvalidSchema(
            f"{path}: {name[:80]!r} needs a precision and a scale, such as 'decimal(10,2)'",
            field=path,
            suggestion="decimal(10,2)",
        )
    near, words = hint(name, _TYPE_NAMES)
    other = _OTHER_SYSTEMS.get(name.casefold())
    if other:
        near, words = other, f"did you mean {other!r}?"
    raise InvalidSchema(f"{path}: {name[:80]!r} is not a type; {words}", field=path, suggestion=near)


def _element(keys: Mapping[str, Any], key: str, path: str, depth: int) -> tuple[ColumnType, bool]:
    where = f"{path}.{key}"
    value = keys.get(key)
    if value is None:
        raise InvalidSchema(
            f'{where} is missing; send a type\'s name, or an object with "type"',
            field=where,
        )
    if isinstance(value, str):
        if value in _KEYS_OF:
            needed = " and ".join(repr(k) for k in _KEYS_OF[value])
            raise InvalidSchema(f"{where}: {value!r} needs {needed}; send an object with them", field=where)
        return _leaf(value, where), False
    return _definition(value, where, depth)


def _map(keys: Mapping[str, Any], path: str, depth: int) -> Map:
    key, _ = _element(keys, "key_type", path, depth)
    where = f"{path}.key_type"
    given = keys["key_type"] if isinstance(keys["key_type"], Mapping) else {}
    if not _required({"required": True, **{k: v for k, v in given.items() if v is not None}}, where):
        raise InvalidSchema(f"{where}: a map's key is never null; remove 'required'", field=where)
    if not isinstance(key, Primitive | DecimalType):
        raise InvalidSchema(f"{where} must be a plain type, not {key}; a key is one value", field=where)
    if isinstance(key, Primitive) and key.name in FLOATING:
        raise InvalidSchema(
            f"{where} cannot be {key}: equal-looking floating-point keys differ; use string, long or decimal(p,s)",
            field=where,
        )
    value, value_required = _element(keys, "value_type", path, depth)
    return Map(key, value, value_required)


def _primary_key(value: Any, fields: tuple[Field, ...], path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidSchema(f"{path} must be a list of column names", field=path)
    table = TableSchema(fields)
    for i, name in enumerate(value):
        where = f"{path}[{i}]"
        kind = table.field(name, error=InvalidSchema, path=where).type
        if name in value[:i]:
            raise InvalidSchema(f"{where}: {name!r} is named twice", field=where)
        if not isinstance(kind, Primitive | DecimalType) or (isinstance(kind, Primitive) and kind.name in FLOATING):
            raise InvalidSchema(
                f"{where}: {name!r} is {kind}, which cannot be a key; use a plain type other than float and double",
                field=where,
            )
    return tuple(value)


def _describe_fields(fields: tuple[Field, ...]) -> dict[str, Any]:
    return {f.name: {**_describe_type(f.type), "required": f.required} for f in fields}


def _describe_type(kind: ColumnType) -> dict[str, Any]:
    match kind:
        case Array():
            return {"type": "array", "items": _describe_element(kind.items, kind.items_required)}
        case Map():
            value = _describe_element(kind.value, kind.value_required)
            return {"type": "map", "key_type": str(kind.key), "value_type": value}
        case Struct():
            return {"type": "struct", "fields": _describe_fields(kind.fields)}
    return {"type": str(kind)}


def _describe_element(kind: ColumnType, required: bool) -> str | dict[str, Any]:
    if isinstance(kind, Primitive | DecimalType) and not required:
        return str(kind)
    return {**_describe_type(kind), "required": required}


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
