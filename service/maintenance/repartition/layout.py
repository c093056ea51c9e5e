"""Checks and names the partitioning that a request asks for. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from service.errors import InvalidSchema
from service.model.schema.derived import DerivedColumn
from service.model.schema.partition import PARAMS, PartitionField, parse_partition
from service.model.schema.types import TableSchema, fold_case

_PATH = "partition.partitions"


def refuse_partition_names(derived: Iterable[DerivedColumn], past: Iterable[PartitionField]) -> None:
    """Refuse a new column with the name of a partition field of another column, present or past."""
    names = {fold_case(field.name): field for field in past}
    for one in derived:
        field = names.get(fold_case(one.column))
        if field is not None:
            where = f"transform.{one.column}"
            raise InvalidSchema(
                f"{where} is the name of a partition field, {field.transform} of {field.field!r}; choose another name",
                field=where,
            )


def parse_layout(
    value: Any, schema: TableSchema, present: tuple[PartitionField, ...], past: Iterable[PartitionField]
) -> tuple[PartitionField, ...]:
    """The partitioning that a JSON value describes; `present` for null. `schema` includes new columns.

    `past` are the fields of all partitionings the table has had. Engines show values of all of them side by side, so
    a name keeps its meaning.
    """
    if value is None:
        return present
    fields = parse_partition(value, schema)
    given = [isinstance(item, Mapping) and item.get("name") is not None for item in value["partitions"]]
    if not any(given) and [_meaning(f) for f in fields] == [_meaning(f) for f in present]:
        return present
    meanings: dict[str, set[tuple[Any, ...]]] = {}
    for one in past:
        meanings.setdefault(fold_case(one.name), set()).add(_meaning(one))
    named: list[PartitionField] = []
    for i, (field, its_name) in enumerate(zip(fields, given, strict=True)):
        others = {fold_case(f.name) for f in (*named, *fields[i + 1 :])} | {fold_case(name) for name in schema.names}
        named.append(_named(field, meanings, others, f"{_PATH}[{i}].name" if its_name else None))
    return tuple(named)


def _meaning(field: PartitionField) -> tuple[Any, ...]:
    return field.field, field.transform, field.param


def _named(
    field: PartitionField, meanings: Mapping[str, set[tuple[Any, ...]]], others: set[str], path: str | None
) -> PartitionField:
    """The field under a name that never meant anything else. With `path`, the request chose the name: then it is
    refused."""

    def means_this(name: str) -> bool:
        return meanings.get(fold_case(name), {_meaning(field)}) == {_meaning(field)}

    if means_this(field.name):
        return field
    if path is not None:
        raise InvalidSchema(
            f"{path}: {field.name!r} was the name of another partition field of this table; send another one",
            field=path,
        )
    root = field.field.replace(".", "_")
    root += f"_{field.transform}" + (f"_{field.param}" if field.transform in PARAMS else "")
    names = (root, *(f"{root}_{n}" for n in range(2, 1000)))
    free = next(name for name in names if means_this(name) and fold_case(name) not in others)
    return PartitionField(field.field, field.transform, free, field.param)
