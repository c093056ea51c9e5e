"""Schemas in JSON: parse a table's columns and types from a request, and describe them in the same form."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from service.errors import InvalidSchema
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
    is_floating,
)

MAX_PRECISION = 38
MAX_DEPTH = 32
MAX_NAME = 255

# Iceberg adds these columns when it reads a table. A table with a column of the same name cannot be read.
_METADATA_COLUMNS = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
_DECIMAL = re.compile(r"decimal\s*\(\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*\)")
_TYPE_NAMES = (*PRIMITIVES, "decimal(p,s)", "array", "map", "struct")
# The types of other systems, by their names there.
_OTHER_SYSTEMS = {
    **dict.fromkeys(("int", "int32", "smallint"), "integer"),
    **dict.fromkeys(("bigint", "int64"), "long"),
    **dict.fromkeys(("number", "float64"), "double"),
    **dict.fromkeys(("str", "text", "varchar"), "string"),
    **dict.fromkeys(("datetime", "timestamp_ntz"), "timestamp"),
    **dict.fromkeys(("decimal", "numeric"), "decimal(10,2)"),
    **{"real": "float", "bool": "boolean", "timestamp_ltz": "timestamptz", "bytes": "binary"},
    **{"list": "array", "object": "struct", "dict": "map"},
}
_COMMON_KEYS = ("type", "required", "nullable")
_KEYS_OF = {"array": ("items",), "map": ("key_type", "value_type"), "struct": ("fields",)}
_BELONGS_TO = {key: kind for kind, keys in _KEYS_OF.items() for key in keys}


def parse_schema(value: Any, path: str = "schema") -> TableSchema:
    """The schema that a JSON value describes; InvalidSchema if it is wrong."""
    keys = read_object(value, path, ("fields", "primary_key"))
    fields = _fields(keys.get("fields"), f"{path}.fields", 1)
    key = _primary_key(keys.get("primary_key"), fields, f"{path}.primary_key")
    return TableSchema(tuple(Field(f.name, f.type, f.required or f.name in key) for f in fields), key)


def parse_field(name: str, definition: Any, path: str, at: str, *, nested: bool) -> Field:
    """One column, or one field of a struct, from its definition in `fields`.

    `path` is the place of its name in the request, `at` the place of its definition.
    """
    check_column_name(name, path, nested=nested)
    return Field(name, *_definition(definition, at, 1))


def check_key(value: Any, fields: tuple[Field, ...], path: str) -> tuple[str, ...]:
    """A primary key over existing columns, which must all be required."""
    key = _primary_key(value, fields, path)
    for i, name in enumerate(key):
        if not next(f for f in fields if f.name == name).required:
            raise InvalidSchema.at(f"{path}[{i}]", f"{name!r} is nullable; use required columns for a primary key")
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
        raise InvalidSchema.at(path, "a name is empty or not text; name every column")
    shown = repr(name[:80])
    if len(name) > MAX_NAME:
        raise InvalidSchema.at(path, f"{shown}… has {len(name)} characters; use at most {MAX_NAME}")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidSchema.at(path, f"{shown} contains a control character; use visible characters")
    if "." in name or "`" in name:
        raise InvalidSchema.at(path, f"{shown} contains a dot or a backquote; use '_' (dots address nested fields)")
    if name.lower().startswith(RESERVED_COLUMN_PREFIX):
        raise InvalidSchema.at(path, f"{shown} begins with {RESERVED_COLUMN_PREFIX!r}, which is reserved; rename it")
    if not nested and fold_case(name) in _METADATA_COLUMNS:
        raise InvalidSchema.at(path, f"{shown} is the name of one of Iceberg's metadata columns; choose another name")
    return name


def refuse_same_names(names: Iterable[str], parent: str) -> None:
    """Refuse names that are equal but for case; `parent` is what precedes each name in its place in the request."""
    seen: dict[str, str] = {}
    for name in names:
        folded = fold_case(name)
        if folded in seen:
            raise InvalidSchema.at(
                parent + name,
                f"{seen[folded]!r} and {name!r} are the same name to Spark, which ignores case; rename one",
            )
        seen[folded] = name


def read_object(value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a JSON object that are not null; InvalidSchema if one of its fields is not known."""
    if not isinstance(value, Mapping):
        raise InvalidSchema.at(path, f"expected an object with {', '.join(known)}, not {_kind(value)}")
    for key in value:
        if key not in known:
            raise InvalidSchema.unknown(f"{path}.{str(key)[:80]}", key, "a field here", known)
    return {k: v for k, v in value.items() if v is not None}


def _fields(value: Any, path: str, depth: int) -> tuple[Field, ...]:
    if not isinstance(value, Mapping) or not value:
        raise InvalidSchema.at(path, 'expected an object with at least one column, such as {"id": {"type": "long"}}')
    for name in value:
        check_column_name(name, path, nested=depth > 1)
    refuse_same_names(value, f"{path}.")
    return tuple(Field(name, *_definition(item, f"{path}.{name}", depth)) for name, item in value.items())


def _definition(value: Any, path: str, depth: int) -> tuple[ColumnType, bool]:
    if depth > MAX_DEPTH:
        raise InvalidSchema.at(path, f"nested more than {MAX_DEPTH} deep (a map counts twice); flatten it")
    if isinstance(value, str):
        raise InvalidSchema.at(path, f'expected an object; send {{"type": "{value[:80]}"}}')
    keys = read_object(value, path, (*_COMMON_KEYS, *_BELONGS_TO))
    name = keys.get("type")
    if isinstance(name, str) and name in _TYPE_NAMES:
        for key in keys:
            kind = _BELONGS_TO.get(key, name)
            if kind != name:
                raise InvalidSchema.at(f"{path}.{key}", f"it belongs to type {kind}, not {name}; remove it")
    return _type(name, keys, path, depth), _required(keys, path)


def _required(keys: Mapping[str, Any], path: str) -> bool:
    for key in ("required", "nullable"):
        if not isinstance(keys.get(key, False), bool):
            raise InvalidSchema.at(f"{path}.{key}", f"expected true or false, not {_kind(keys[key])}")
    required = bool(keys.get("required", not keys.get("nullable", True)))
    if keys.get("nullable") == required:
        raise InvalidSchema.at(f"{path}.nullable", "it contradicts 'required'; send only one of them")
    return required


def _type(name: Any, keys: Mapping[str, Any], path: str, depth: int) -> ColumnType:
    match name:
        case None:
            raise InvalidSchema.at(f"{path}.type", f"the type is missing; use one of {', '.join(_TYPE_NAMES)}")
        case "struct":
            return Struct(_fields(keys.get("fields"), f"{path}.fields", depth + 1))
        case "array":
            return Array(*_element(keys, "items", path, depth + 1))
        case "map":
            # A map has two levels in Arrow, and each level doubles the code that Spark generates to write a row.
            return _map(keys, path, depth + 2)
    return parse_leaf(name, f"{path}.type")


def parse_leaf(name: Any, path: str) -> ColumnType:
    """A type that is only a name, such as `long` or `decimal(10,2)`."""
    if not isinstance(name, str):
        raise InvalidSchema.at(path, f"expected the name of a type, not {_kind(name)}")
    if name in PRIMITIVES:
        return Primitive(name)
    shown = repr(name[:80])
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return DecimalType(precision, scale)
        raise InvalidSchema.at(
            path, f"{shown} is not a type; use a precision from 1 to {MAX_PRECISION}, and a scale up to the precision"
        )
    if name.startswith("decimal"):
        example = "decimal(10,2)"
        raise InvalidSchema.at(path, f"{shown} needs a precision and a scale, such as {example!r}", example)
    if name in _KEYS_OF:
        raise InvalidSchema.at(path, f"{name} cannot be used here; use a plain type, such as long or string")
    other = _OTHER_SYSTEMS.get(name.casefold())
    if other:
        raise InvalidSchema.at(path, f"{shown} is not a type; did you mean {other!r}?", other)
    raise InvalidSchema.unknown(path, name, "a type", _TYPE_NAMES)


def _element(keys: Mapping[str, Any], key: str, path: str, depth: int) -> tuple[ColumnType, bool]:
    where = f"{path}.{key}"
    value = keys.get(key)
    if value is None:
        raise InvalidSchema.at(where, 'it is missing; send the name of a type, or an object with "type"')
    if not isinstance(value, str):
        return _definition(value, where, depth)
    if value in _KEYS_OF:
        needed = " and ".join(repr(k) for k in _KEYS_OF[value])
        raise InvalidSchema.at(where, f"{value!r} needs {needed}; send an object with them")
    return parse_leaf(value, where), False


def _map(keys: Mapping[str, Any], path: str, depth: int) -> Map:
    key, _ = _element(keys, "key_type", path, depth)
    where = f"{path}.key_type"
    given = keys["key_type"] if isinstance(keys["key_type"], Mapping) else {}
    if not _required({"required": True, **{k: v for k, v in given.items() if v is not None}}, where):
        raise InvalidSchema.at(where, "the keys of a map are never null; remove 'required' or 'nullable'")
    if not isinstance(key, Primitive | DecimalType):
        raise InvalidSchema.at(where, f"a key is a single value, not {key}; use a plain type")
    if is_floating(key):
        raise InvalidSchema.at(
            where, f"{key} keys that look equal may differ; use string, long or decimal(p,s) for the keys"
        )
    return Map(key, *_element(keys, "value_type", path, depth))


def _primary_key(value: Any, fields: tuple[Field, ...], path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidSchema.at(path, "expected a list of column names")
    table = TableSchema(fields)
    for i, name in enumerate(value):
        where = f"{path}[{i}]"
        kind = table.field(name, error=InvalidSchema, path=where).type
        if name in value[:i]:
            raise InvalidSchema.at(where, f"{name!r} is named twice; name it once")
        if not isinstance(kind, Primitive | DecimalType) or str(kind) in FLOATING:
            raise InvalidSchema.at(
                where, f"{name!r} is {kind}, which cannot be a key; use a plain type other than float and double"
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
