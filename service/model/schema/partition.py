"""Partitioning: the transforms of columns by which rows are distributed to files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import FirnError, InvalidSchema, did_you_mean, nearest
from service.model.schema.columns import known_names
from service.model.schema.definition import check_column_name, read_object
from service.model.schema.types import ColumnType, DecimalType, Primitive, TableSchema, fold_case, resolve_field

MAX_PARAM = 2**31 - 1

_DAYS = ("date", "timestamp", "timestamptz")
_ANY = ("string", "integer", "long", "float", "double", "boolean", *_DAYS, "binary", "uuid", "decimal")
# From the table of partition transforms in the Iceberg specification.
_SOURCES = {
    "identity": _ANY,
    "year": _DAYS,
    "month": _DAYS,
    "day": _DAYS,
    "hour": ("timestamp", "timestamptz"),
    "bucket": ("integer", "long", "decimal", *_DAYS, "string", "uuid", "binary"),
    "truncate": ("integer", "long", "decimal", "string", "binary"),
}
TRANSFORMS = tuple(_SOURCES)
PARAMS = {"bucket": "num_buckets", "truncate": "width"}
_TIMES = ("year", "month", "day", "hour")
_SUFFIX = {"identity": "", "truncate": "_trunc"}
_KEYS = ("field", "transform", "name", *PARAMS.values())


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition field; `param` is the number of buckets, or the width of a truncation."""

    field: str
    transform: str
    name: str
    param: int | None = None


def parse_partition(value: Any, schema: TableSchema, path: str = "partition") -> tuple[PartitionField, ...]:
    """The partitioning that a JSON value describes, checked against the schema; empty for null and an empty list."""
    if value is None:
        return ()
    listed = read_object(value, path, ("partitions",)).get("partitions")
    path = f"{path}.partitions"
    if not isinstance(listed, list):
        raise InvalidSchema.at(path, 'expected a list, such as [{"field": "day", "transform": "identity"}]')
    _refuse_missing(listed, schema, path)
    fields: list[PartitionField] = []
    for i, item in enumerate(listed):
        field = _field(item, schema, f"{path}[{i}]")
        _refuse_repeats(field, fields, f"{path}[{i}]")
        fields.append(field)
    return tuple(fields)


def describe_partition(fields: tuple[PartitionField, ...]) -> dict[str, Any]:
    """The JSON form that parses to this partitioning."""
    described = []
    for f in fields:
        item: dict[str, Any] = {"field": f.field, "transform": f.transform, "name": f.name}
        if f.transform in PARAMS:
            item[PARAMS[f.transform]] = f.param
        described.append(item)
    return {"partitions": described}


def check_source(one: PartitionField, schema: TableSchema, path: str) -> None:
    """Refuse a partition field whose column is missing, or has a type that the transform does not accept."""
    kind = resolve_field(schema, one.field, error=InvalidSchema, path=path).type
    if one.transform in _SOURCES:  # other engines may have more transforms
        _check_source(one.transform, one.field, kind, schema, path)


def _field(item: Any, schema: TableSchema, path: str) -> PartitionField:
    keys = read_object(item, path, _KEYS)
    source = keys.get("field")
    if not isinstance(source, str):
        raise InvalidSchema.at(f"{path}.field", "expected the name of a column")
    kind = resolve_field(schema, source, error=InvalidSchema, path=f"{path}.field").type
    transform = keys.get("transform", "identity")
    if transform not in TRANSFORMS:
        raise InvalidSchema.unknown(f"{path}.transform", transform, "a transform", TRANSFORMS)
    _check_source(transform, source, kind, schema, f"{path}.transform")
    param = _param(keys, transform, path)
    name = keys.get("name")
    if name is None:
        # Engines that read the partition as a struct would take a dot for a nested field.
        name = source.replace(".", "_") + _SUFFIX.get(transform, f"_{transform}")
    return PartitionField(source, transform, _name(name, source, transform, schema, f"{path}.name"), param)


def _check_source(transform: str, source: str, kind: ColumnType, schema: TableSchema, path: str) -> None:
    name = kind.name if isinstance(kind, Primitive) else "decimal" if isinstance(kind, DecimalType) else None
    if name not in _SOURCES[transform]:
        accepted = ", ".join(_SOURCES[transform])
        raise InvalidSchema.at(path, f"{transform} cannot use {source!r}, which is {kind}; it accepts {accepted}")
    if transform == "identity":
        _refuse_nullable_parent(source, schema, path)


def _refuse_nullable_parent(source: str, schema: TableSchema, path: str) -> None:
    # Iceberg's Spark reader reads the value of an identity partition from metadata. If it reads nothing else of a
    # struct, it never returns null for the struct: `SELECT s.v … WHERE s IS NULL` finds no row.
    steps = [source] if source in schema.names else source.split(".")
    for n in range(1, len(steps)):
        parent = ".".join(steps[:n])
        if not resolve_field(schema, parent).required:
            raise InvalidSchema.at(
                path,
                f"identity cannot use {source!r}, because a null {parent!r} would be read as not null; make that "
                "struct required, or use bucket or truncate",
            )


def _param(keys: Mapping[str, Any], transform: str, path: str) -> int | None:
    for other, key in PARAMS.items():
        if key in keys and other != transform:
            raise InvalidSchema.at(f"{path}.{key}", f"it belongs to {other}, not {transform}; remove it")
    if transform not in PARAMS:
        return None
    key = PARAMS[transform]
    param = keys.get(key)
    if not isinstance(param, int) or isinstance(param, bool) or not 1 <= param <= MAX_PARAM:
        raise InvalidSchema.at(f"{path}.{key}", f"{transform} needs a whole number from 1 to {MAX_PARAM}")
    return param


def _name(name: Any, source: str, transform: str, schema: TableSchema, path: str) -> str:
    check_column_name(name, path)
    column = next((f for f in schema.fields if fold_case(f.name) == fold_case(name)), None)
    if column and not (transform == "identity" and column.name == source == name):
        raise InvalidSchema.at(
            path, f"{name!r} is the name of column {column.name!r}; send another 'name' for this partition"
        )
    return str(name)


def _refuse_repeats(field: PartitionField, before: list[PartitionField], path: str) -> None:
    for other in before:
        if fold_case(other.name) == fold_case(field.name):
            problem = f"{field.name!r} is the name of two partitions; send another 'name' for one of them"
            raise InvalidSchema.at(f"{path}.name", problem)
        if other.field == field.field and other.transform in _TIMES and field.transform in _TIMES:
            problem = f"{field.field!r} is already partitioned by {other.transform}; keep the finer one"
            raise InvalidSchema.at(f"{path}.transform", problem)
        if (other.field, other.transform, other.param) == (field.field, field.transform, field.param):
            problem = f"{field.transform} of {field.field!r} is given twice; remove one of them"
            raise InvalidSchema.at(f"{path}.transform", problem)


def _refuse_missing(listed: list[Any], schema: TableSchema, path: str) -> None:
    """Refuse partition columns that do not exist, all in one message."""
    known = known_names(schema)
    missing: dict[str, str] = {}
    near: dict[str, str] = {}
    for i, item in enumerate(listed):
        source = item.get("field") if isinstance(item, Mapping) else None
        if not isinstance(source, str):
            continue
        try:
            resolve_field(schema, source)
        except FirnError as e:
            missing.setdefault(source, f"{path}[{i}].field")
            if found := nearest(source, known) or e.suggestion:
                near[source] = found
    if not missing:
        return
    hint = did_you_mean(next(iter(missing)), known)[1]
    if near:
        several = len(missing) > 1
        hint = " and ".join(f"{found!r} for {name!r}" if several else repr(found) for name, found in near.items())
        hint = f"did you mean {hint}?"
    raise InvalidSchema(
        f"Partition columns not found: {', '.join(name[:80] for name in missing)}; {hint}",
        field=next(iter(missing.values())),
        suggestion=next(iter(near.values()), None),
    )
