"""Make a fetched file readable for Spark: find its columns, and convert what Spark cannot read or split."""

import codecs
import csv
import io
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from service.errors import InvalidFile
from service.ingest.sources.fetch import FetchedFile
from service.ingest.sources.records import Record, csv_records
from service.model.ingest.dataset import CsvFormat
from service.model.ingest.reading import LINE_COLUMN, PROBLEM_COLUMN, RAW_COLUMN, ReadableFile
from service.model.schema.types import fold_case

_CHUNK = 4 << 20
_GROUP_ROWS = 1 << 17
SPLIT = pa.schema([(LINE_COLUMN, pa.int64()), (RAW_COLUMN, pa.string()), (PROBLEM_COLUMN, pa.bool_())])
_MOST_COLUMNS = 10_000
# Types that Spark reads from Parquet files as they are.
_PARQUET_TEXT = (pa.types.is_time, pa.types.is_duration)


def readable(file: FetchedFile, folder: Path, how: CsvFormat, columns: tuple[str, ...] | None) -> ReadableFile:
    """The file as Spark can read it. `columns` are those of a CSV file without a header, if they are known."""
    try:
        if file.format == "csv":
            return _csv(file, folder, how, columns)
        if file.format == "json":
            return _json(file, folder)
        return _binary(file, folder)
    except (pa.ArrowException, OSError, EOFError, UnicodeError, csv.Error) as e:
        # Python's own words are about its options.
        reason = "a line ends in the middle of a field" if "new-line character" in str(e) else str(e)
        reason = " ".join(reason.split())[:300]
        raise InvalidFile(f"{file.source.name!r} cannot be read as {file.format}: {reason}") from e


def split(file: FetchedFile, read: ReadableFile, folder: Path, how: CsvFormat) -> ReadableFile:
    """The same text file, split into records, which is worth it for a small one that is read together with others."""
    if read.is_split:
        return read
    is_csv = read.format == "csv"
    with _lines(file.path, how.encoding if is_csv else "utf-8") as lines:
        path = _split(_csv_split(lines, how, skipped=how.header) if is_csv else _json_split(lines), folder)
    return replace(
        read,
        path=str(path),
        size=path.stat().st_size,
        is_split=True,
        skipped_lines=0,
        skipped_records=0,
        has_cr=False,
        has_bom=False,
        has_invalid_text=False,
    )


def count_records(file: ReadableFile, fetched: FetchedFile) -> int:
    """The number of records, rejected ones included."""
    if file.format == "parquet" or file.is_split:
        return int(pq.read_metadata(file.path).num_rows)
    facts = fetched.facts
    assert facts is not None
    return facts.records - file.skipped_records


def lines_before(path: str, size: int) -> list[int]:
    """How many lines there are before the first one that begins in each part of this size of a text file."""
    counts, seen, place = [0], 0, 0
    with Path(path).open("rb", buffering=0) as stream:
        while chunk := stream.read(min(_CHUNK, size - place % size)):
            seen += chunk.count(b"\n")
            place += len(chunk)
            if place % size == 0:
                # The line that begins before a part, or right at its start, belongs to the part before it.
                counts.append(seen + 1)
    return counts


def _csv(file: FetchedFile, folder: Path, how: CsvFormat, columns: tuple[str, ...] | None) -> ReadableFile:
    facts = file.facts
    is_split = facts is None or facts.has_open_quotes
    with _lines(file.path, how.encoding) as lines:
        first = next(csv_records((line for line, _ in lines), how.delimiter, how.quote), None)
    if first is None:
        raise InvalidFile(f"{file.source.name!r} is empty; a CSV file needs at least a header")
    fields = _fields_of(first.raw, how)
    if how.header:
        _check_header(fields, file)
        fields = [name.strip() for name in fields]
    else:
        fields = list(columns) if columns is not None else [f"column_{i}" for i in range(1, len(fields) + 1)]
    common: dict[str, Any] = {"format": "csv", "fields": tuple(fields), "delimiter": how.delimiter, "quote": how.quote}
    common["null_values"] = how.null_values
    if is_split:
        with _lines(file.path, how.encoding) as lines:
            path = _split(_csv_split(lines, how, skipped=how.header), folder)
        return ReadableFile(str(path), path.stat().st_size, is_split=True, **common)
    assert facts is not None
    return ReadableFile(
        _for_spark(file.path, folder),
        file.path.stat().st_size,
        skipped_lines=first.line + first.raw.count("\n") if how.header else 0,
        skipped_records=1 if how.header else 0,
        has_cr=facts.has_cr,
        has_bom=facts.has_bom,
        has_invalid_text=not facts.is_utf8,
        has_quotes=facts.has_quotes,
        has_nul=facts.has_nul,
        **common,
    )


def _json(file: FetchedFile, folder: Path) -> ReadableFile:
    facts = file.facts
    assert facts is not None
    fields: dict[str, None] = {}
    all_valid = facts.is_utf8
    with file.path.open("rb") as stream:
        for number, line in enumerate(stream):
            if number == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line in (b"\n", b"\r\n"):
                continue
            try:
                found = orjson.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                all_valid = False
            elif not fields.keys() >= found.keys():
                fields |= dict.fromkeys(found)
                _check_count(len(fields), file)
    names = tuple(fields)
    _refuse_same(names, file, "keys")
    if all_valid and not facts.has_bom:
        size = file.path.stat().st_size
        return ReadableFile(_for_spark(file.path, folder), size, "json", names, has_cr=facts.has_cr)
    with _lines(file.path, "utf-8") as lines:
        path = _split(_json_split(lines), folder)
    return ReadableFile(str(path), path.stat().st_size, "json", names, is_split=True)


def _binary(file: FetchedFile, folder: Path) -> ReadableFile:
    with _batches(file) as (schema, batches):
        _check_count(len(schema.names), file)
        _refuse_same(tuple(schema.names), file, "columns")
        target = pa.schema([pa.field(f.name, _spark_type(f.type)) for f in schema])
        if file.format == "parquet" and target.types == schema.types:
            path = file.path
        else:
            path = folder / f"{uuid.uuid4().hex}.parquet"
            with pq.ParquetWriter(path, target, compression="none", store_schema=False) as writer:
                for batch in batches:
                    writer.write_batch(batch.cast(target))
    return ReadableFile(_for_spark(path, folder), path.stat().st_size, "parquet", tuple(schema.names))


def _for_spark(path: Path, folder: Path) -> str:
    """A path of the same file that means the same to Spark, which ignores `_a.csv` and reads `[a].csv` as a pattern."""
    if path.parent == folder:
        return str(path)
    link = folder / uuid.uuid4().hex
    link.symlink_to(path)
    return str(link)


@contextmanager
def _batches(file: FetchedFile) -> Iterator[tuple[pa.Schema, Iterable[pa.RecordBatch]]]:
    if file.format == "parquet":
        with pq.ParquetFile(file.path) as parquet:
            yield parquet.schema_arrow, parquet.iter_batches()
        return
    with pa.memory_map(str(file.path)) as source:
        if source.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(source)
            yield reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            source.seek(0)
            stream = pa.ipc.open_stream(source)
            yield stream.schema, stream


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark reads from Parquet files."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if any(test(kind) for test in _PARQUET_TEXT):
        return pa.string()
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    return kind


@contextmanager
def _lines(path: Path, encoding: str) -> Iterator[Iterator[tuple[str, bool]]]:
    """The lines of a text without their ends, each with whether it was not in the encoding."""
    with path.open("rb") as raw:
        if encoding.lower() == "utf-8":
            yield _utf8_lines(raw)
            return
        decoded = io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="\n")
        yield ((line.removesuffix("\n").removesuffix("\r"), "\ufffd" in line) for line in decoded)


def _utf8_lines(raw: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    for number, line in enumerate(raw):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 0:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode(), False
        except UnicodeDecodeError:
            yield line.decode(errors="replace"), True


def _csv_split(lines: Iterator[tuple[str, bool]], how: CsvFormat, *, skipped: bool) -> Iterator[Record]:
    wrong: set[int] = set()

    def texts() -> Iterator[str]:
        for number, (line, is_wrong) in enumerate(lines, 1):
            if is_wrong:
                wrong.add(number)
            yield line

    for record in csv_records(texts(), how.delimiter, how.quote):
        if skipped:
            skipped = False
            continue
        last = record.line + record.raw.count("\n")
        is_wrong = bool(wrong) and any(record.line <= number <= last for number in wrong)
        yield record._replace(has_problem=True) if is_wrong else record


def _json_split(lines: Iterator[tuple[str, bool]]) -> Iterator[Record]:
    for number, (line, is_wrong) in enumerate(lines, 1):
        if line:
            yield Record(number, line, is_wrong or not _is_object(line))


def _is_object(line: str) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except ValueError:
        return False


def _split(records: Iterator[Record], folder: Path) -> Path:
    """Write records to a Parquet file that Spark can read in parallel."""
    path = folder / f"{uuid.uuid4().hex}.parquet"
    with pq.ParquetWriter(path, SPLIT, compression="none", use_dictionary=False, write_statistics=False) as writer:
        group: list[Record] = []
        size = 0
        for record in records:
            group.append(record)
            size += len(record.raw)
            if len(group) >= _GROUP_ROWS or size >= _CHUNK * 4:
                writer.write_table(_table(group))
                group, size = [], 0
        writer.write_table(_table(group))
    return path


def _table(records: list[Record]) -> pa.Table:
    columns = zip(*records, strict=True) if records else ((), (), ())
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SPLIT, strict=True)], schema=SPLIT)


def _fields_of(raw: str, how: CsvFormat) -> list[str]:
    text = raw.removeprefix("\ufeff")
    return next(csv.reader([text], delimiter=how.delimiter, quotechar=how.quote), [])


def _check_header(fields: list[str], file: FetchedFile) -> None:
    _check_count(len(fields), file)
    for i, name in enumerate(fields, 1):
        if not name.strip():
            raise InvalidFile(
                f"column {i} of {file.source.name!r} has no name; name it in the header, or set csv.header to false"
            )
    _refuse_same(tuple(name.strip() for name in fields), file, "columns")


def _refuse_same(names: tuple[str, ...], file: FetchedFile, what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(fold_case(name), name)
        if first is not name:
            raise InvalidFile(
                f"{file.source.name!r} has {what} {first!r} and {name!r}, which are the same name; rename one"
            )


def _check_count(count: int, file: FetchedFile) -> None:
    if count > _MOST_COLUMNS:
        raise InvalidFile(f"{file.source.name!r} has {count} columns; at most {_MOST_COLUMNS} are supported")
