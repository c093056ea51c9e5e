"""What the footer of a Parquet file that Arrow wrote does not say of its values."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from service.engine.jobs.arrow.files import FIELD_ID


@dataclass(frozen=True)
class ColumnStatistics:
    """A column's values. `nans` is None if the column is not of floats; the ends then are those of texts or bytes."""

    field_id: int
    values: int
    nulls: int
    nans: int | None = None
    low: str | bytes | None = None
    high: str | bytes | None = None


def missing_statistics(path: str, *, floats: bool) -> list[ColumnStatistics]:
    """The statistics of columns that Iceberg cannot take from the file's footer, which are computed from their values.

    Arrow leaves out the ends of a row group's texts if one has more than 4 KiB. Iceberg would then take those of the
    other row groups for those of the file, and not find rows. It never stores how many values are NaN; with `floats`
    that is counted.
    """
    with pq.ParquetFile(path) as file:
        columns = file.schema_arrow
        if any(kinds.is_nested(column.type) for column in columns):  # Spark wrote the file
            return []
        found = []
        for number, column in enumerate(columns):
            if floats and kinds.is_floating(column.type):
                found.append(_of_floats(file, column))
            elif _is_text(column.type) and not _has_ends(file.metadata, number):
                found.append(_of_texts(file, column))
        return found


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary))


def _has_ends(metadata: pq.FileMetaData, column: int) -> bool:
    """Whether each row group that has values of a column says which ones are the lowest and the highest."""
    for i in range(metadata.num_row_groups):
        chunk = metadata.row_group(i).column(column)
        known = chunk.statistics if chunk.is_stats_set else None
        if known is None or not (known.has_min_max or known.num_values == 0):
            return False
    return True


def _of_floats(file: pq.ParquetFile, column: pa.Field) -> ColumnStatistics:
    nulls = nans = 0
    for values in _pieces(file, column):
        nulls += values.null_count
        nans += pc.sum(pc.is_nan(values)).as_py() or 0
    return ColumnStatistics(_id(column), file.metadata.num_rows, nulls, nans)


def _of_texts(file: pq.ParquetFile, column: pa.Field) -> ColumnStatistics:
    nulls = 0
    lows, highs = list[pa.Scalar](), list[pa.Scalar]()
    for values in _pieces(file, column):
        nulls += values.null_count
        ends = pc.min_max(values)
        lows.append(ends["min"])
        highs.append(ends["max"])
    try:
        low = min((end.as_py() for end in lows if end.is_valid), default=None)
        high = max((end.as_py() for end in highs if end.is_valid), default=None)
    except UnicodeDecodeError:  # another program's text; without ends, every reader looks into the file
        low = high = None
    return ColumnStatistics(_id(column), file.metadata.num_rows, nulls, None, low, high)


def _pieces(file: pq.ParquetFile, column: pa.Field) -> Iterator[pa.ChunkedArray]:
    for i in range(file.num_row_groups):
        yield file.read_row_group(i, columns=[column.name], use_threads=False).column(0)


def _id(column: pa.Field) -> int:
    return int(column.metadata[FIELD_ID])
