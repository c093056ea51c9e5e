"""A partition's fields and values, in the form of records and responses."""

import math
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg import transforms as t
from pyiceberg import types as i
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.utils.datetime import (
    date_to_days,
    days_to_date,
    micros_to_time,
    micros_to_timestamp,
    micros_to_timestamptz,
)

from service.catalog import types
from service.catalog.tables import Table
from service.model.names import RESERVED_COLUMN_PREFIX
from service.model.schema.partition import PartitionField
from service.model.schema.ranges import RANGE_FIELD

_TIMES = (t.YearTransform, t.MonthTransform, t.DayTransform, t.HourTransform)


def partition_values(table: Table, group: tuple[Any, ...]) -> dict[str, Any]:
    """The partition of a group of files, by the partitioning they were written with.

    Values are as in a QUERY's response; a year, month, day or hour is text such as `2024-05`; a bucket is its number.
    """
    spec_id, *values = group
    fields = table.iceberg.specs()[spec_id].fields
    return {
        field.name: _shown(field, _source(table, field.source_id), value)
        for field, value in zip(fields, values, strict=False)
        if not isinstance(field.transform, t.VoidTransform)  # the remains of a dropped field
        and not field.name.startswith(RESERVED_COLUMN_PREFIX)
    }


def partition_range(table: Table, group: tuple[Any, ...]) -> int | None:
    """The number of the key range that a group of files holds; None if the table is not split by ranges."""
    spec_id, *values = group
    fields = table.iceberg.specs()[spec_id].fields
    found = (v for f, v in zip(fields, values, strict=False) if f.name == RANGE_FIELD.name)
    return next((number for number in found if isinstance(number, int)), None)


def format_value(field: PartitionField, value: Any) -> Any:
    """A partition's value as Spark's functions return it, in the form of `partition_values`: in Spark years, months and
    hours are numbers."""
    if field.transform in ("year", "month", "hour") and isinstance(value, int):
        return _moment_text(types.to_transform(field), value)
    return value


def _source(table: Table, field_id: int) -> i.IcebergType | None:
    """The type of a column, which may have been dropped since."""
    for schema in (table.iceberg.schema(), *reversed(table.iceberg.metadata.schemas)):
        try:
            return schema.find_type(field_id)
        except ValueError:
            continue
    return None


def _shown(field: IcebergField, source: i.IcebergType | None, value: Any) -> Any:
    if value is None or isinstance(field.transform, t.BucketTransform):
        return value
    if isinstance(field.transform, _TIMES):
        number = date_to_days(value) if isinstance(value, date) else value
        return _moment_text(field.transform, number)
    try:
        return _value(source, value)
    except (OverflowError, ValueError):
        return str(value)


def _moment_text(transform: t.Transform[Any, Any], number: int) -> str:
    try:
        return transform.to_human_string(i.LongType(), number)
    except OverflowError:  # beyond the years that Python knows
        return str(number)


def _value(kind: i.IcebergType | None, value: Any) -> Any:
    """A column's value in Iceberg's form, in the form of JSON responses."""
    match value:
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case UUID():
            return str(value)
        case bool() | str() | bytes() | Decimal() | date() | time():
            return value
        case int():
            return _moment(kind, value)
    return str(value)


def _moment(kind: i.IcebergType | None, value: int) -> Any:
    match kind:
        case i.DateType():
            return days_to_date(value)
        case i.TimestampType():
            return micros_to_timestamp(value)
        case i.TimestamptzType():
            return micros_to_timestamptz(value)
        case i.TimestampNanoType():
            return micros_to_timestamp(value // 1000)
        case i.TimestamptzNanoType():
            return micros_to_timestamptz(value // 1000)
        case i.TimeType():
            return micros_to_time(value)
    return value
