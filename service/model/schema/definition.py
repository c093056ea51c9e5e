"""Schemas in JSON: read a table's columns and types from a request, and describe them in the same form."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from service.errors import InvalidSchema, did_you_mean
from service.model.names import RESERVED_COLUMN_PREFIX
from service.model.schema.types import (
    FLOATING,
    PRIMITIVES,
    Array,
    ColumnType,
    DecimalType,
    Field,
    Map,
    Primitive,
    Struct,
    TableSchema,
    fold_case,
)

MAX_PRECISION = 38
MAX_DEPTH = 32
MAX_NAME = 255

# Iceberg adds these columns to what it reads: a table with such a column of its own cannot be read.
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


def parse_schema(value: Any, path: str = "schema") -> TableSchema:
    """The schema a JSON value describes, or InvalidSchema with the path of what is wrong."""
    keys = read_object(value, path, ("fields", "primary_key"))
    fields = _fields(keys.get("fields"), f"{path}.fields", 1)
    key = _primary_key(keys.get("primary_key"), fields, f"{path}.primary_key")
    return TableSchema(tuple(Field(f.name, f.type, f.required or f.name in key) for f in fields), key)


def parse_field(name: str, definition: Any, path: str, at: str, *, nested: bool) -> Field:
    """One column, or one field inside a struct, from its definition in `fields`.

    `path` is where its name stands in the request, `at` where its definition does.
    """
    check_column_name(name, path, nested=nested)
    return Field(name, *_definition(definition, at, 1))


def parse_leaf(value: Any, path: str) -> ColumnType:
    """A type that is only a name, such as `long` or `decimal(10,2)`."""
    return _leaf(value, path)


def check_key(value: Any, fields: tuple[Field, ...], path: str) -> tuple[str, ...]:
    """A primary key over existing columns, which must all be required."""
    key = _primary_key(value, fields, path)
    for i, name in enumerate(key):
        if not next(f for f in fields if f.name == name).required:
            raise InvalidSchema(
                f"{path}[{i}]: {name!r} may be null, also in existing rows; the columns of a key are required",
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
    """Return the name, or raise InvalidSchema if a column or a nested field cannot have it."""
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"{path} holds a name that is empty or not text; name every column", field=path)
    shown = f"{path}: {name[:80]!r}"
    if len(name) > MAX_NAME:
        raise InvalidSchema(f"{shown}… has {len(name)} characters; a name has at most {MAX_NAME}", field=path)
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidSchema(f"{shown} holds a control character; use visible characters", field=path)
    if "." in name or "`" in name:
        raise InvalidSchema(f"{shown} holds a dot or a backquote; dots address nested fields, so use '_'", field=path)
    if name.lower().startswith(RESERVED_COLUMN_PREFIX):
        raise InvalidSchema(f"{shown} begins with {RESERVED_COLUMN_PREFIX!r}, which is reserved", field=path)
    if not nested and fold_case(name) in _METADATA_COLUMNS:
        raise InvalidSchema(
            f"{shown} is one of Iceberg's metadata columns, and a table with such a column cannot be read; choose "
            "another name",
            field=path,
        )
    return name


def read_object(value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a JSON object that are not null; InvalidSchema if it has one that is not known."""
    if not isinstance(value, Mapping):
        raise InvalidSchema(f"{path} must be an object with {', '.join(known)}, not {_kind(value)}", field=path)
    for key in value:
        if key not in known:
            near, words = did_you_mean(str(key), known)
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
        if fold_case(name) in seen:
            raise InvalidSchema(
                f"{path}: {seen[fold_case(name)]!r} and {name!r} differ only in case, which Spark does not tell "
                "apart; rename one",
                field=f"{path}.{name}",
            )
        seen[fold_case(name)] = name
        fields.append(Field(name, *_definition(definition, f"{path}.{name}", depth)))
    return tuple(fields)


def _definition(value: Any, path: str, depth: int) -> tuple[ColumnType, bool]:
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"{path} is nested more than {MAX_DEPTH} deep (a map counts twice); flatten it", field=path)
    if isinstance(value, str):
        raise InvalidSchema(f'{path} must be an object; send {{"type": "{value[:80]}"}}', field=path)
    keys = read_object(value, path, (*_EVERY_TYPE, *_BELONGS_TO))
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
                f"{path}: {name[:80]!r} is not a type; the precision is 1 to {MAX_PRECISION}, the scale at most that",
                field=path,
            )
        return DecimalType(precision, scale)
    if name.startswith("decimal"):
        raise InvalidSchema(
            f"{path}: {name[:80]!r} needs a precision and a scale, such as 'decimal(10,2)'",
            field=path,
            suggestion="decimal(10,2)",
        )
    near, words = did_you_mean(name, _TYPE_NAMES)
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
