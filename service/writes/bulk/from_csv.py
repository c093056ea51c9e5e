"""Read CSV (RFC 4180) with a header as checked batches; an error names the line where the record begins."""

import contextlib
import csv
import itertools
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv as arrow_csv

from service.errors import InvalidRecord
from service.model.records import InvalidValue
from service.model.schema.types import Array, Field, Map, Struct, TableSchema
from service.writes.bulk.body import Body
from service.writes.bulk.from_text import InvalidText, read_texts
from service.writes.bulk.lines import Block, blocks, decoded
from service.writes.bulk.target import Keys, columns_of, decoded_schema

_QUOTED = re.compile(rb'(?<![^,\n])"[^"]*+(?:""[^"]*+)*+"(?=[,\r\n]|\Z)')
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_FIELD = re.compile(rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^",\r\n]*+)(?=,|\Z)')
_LINE = rb'[^"\n]*+(?:"[^"]*+"[^"\n]*+)*+'
_WHOLE_RECORDS = re.compile(rb"(?:%b\n)*+" % _LINE)
_RECORD = re.compile(rb'%b(?:\n|\Z|"[^"]*+\Z)' % _LINE)
_HINT = "put a field that holds a quote, a comma or a line break in quotes, double the quotes in it, and close it"


def read_csv(body: Body, schema: TableSchema, keys: Keys = None) -> Iterator[pa.RecordBatch]:
    """Every record, in order. An empty field is null; `""` is the empty text."""
    reader: _Reader | None = None
    for block in blocks(body, _after_last_record):
        if reader is None:
            first = next(_records(block), None)
            if first is None:
                continue
            line, header, end = first
            reader = _Reader(schema, _column_names(header, line), line, keys)
            block = Block(block.text[end:], block.line + block.text.count(b"\n", 0, end))
        if block.text.strip(b"\r\n"):
            yield reader.read(block)
    if reader is None:
        raise InvalidRecord("the CSV has no header; send the columns' names in its first line")


class _Reader:
    """Reads the blocks after the header."""

    def __init__(self, schema: TableSchema, names: list[str], line: int, keys: Keys) -> None:
        try:
            found = columns_of(schema, names, keys)
            for field, place in found:
                if place is not None and isinstance(field.type, Array | Map | Struct):
                    problem = f"CSV cannot hold {str(field.type)[:80]}; send NDJSON or Arrow"
                    raise InvalidValue(problem, f".{field.name}")
        except InvalidValue as e:
            name = e.path[1:]
            raise InvalidRecord(
                f"line {line}: {name}: {e.problem}", field=name, suggestion=e.suggestion, details={"line": line}
            ) from e
        self._target = decoded_schema(found)
        self._columns = [(field, place, to) for (field, place), to in zip(found, self._target, strict=True)]
        self._names = [str(i) for i in range(len(names))]
        self._done = 0

    def read(self, block: Block) -> pa.RecordBatch:
        unquoted = _QUOTED.sub(b"", block.text) if b'"' in block.text else block.text
        if b'"' in unquoted or _LONE_RETURN.search(unquoted):
            self._refuse_malformed(block)
        texts = self._texts(block)
        columns: list[pa.Array] = []
        refusals: list[tuple[int, Field, InvalidValue]] = []
        for field, place, target in self._columns:
            try:
                columns.append(_column(field, texts, place, target.type))
            except InvalidText as e:
                refusals.append((e.place, field, e.misfit))
        if refusals:
            place, field, misfit = min(refusals, key=lambda r: r[0])
            line = next(itertools.islice(_records(block), place, None))[0]
            raise InvalidRecord(
                f"line {line}: {field.name}: {misfit.problem}",
                field=field.name,
                suggestion=misfit.suggestion,
                details={"line": line, "record": self._done + place, "field": field.name},
            ) from misfit
        self._done += texts.num_rows
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _texts(self, block: Block) -> pa.Table:
        # Without a line break at the end, Arrow reads an empty last field as the empty text.
        text = block.text if block.text.endswith(b"\n") else block.text + b"\n"
        try:
            return arrow_csv.read_csv(
                pa.py_buffer(text),
                arrow_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names),
                arrow_csv.ParseOptions(newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types={name: pa.string() for name in self._names},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as e:
            self._refuse_malformed(block)
            raise InvalidRecord(f"line {block.line} or one after it cannot be read: {str(e)[:200]}") from e

    def _refuse_malformed(self, block: Block) -> None:
        """Raise InvalidRecord for the first malformed record, if there is one."""
        decoded(block.text, block.line)
        for line, record, _ in _records(block):
            count, whole = _count_fields(record)
            if not whole:
                raise InvalidRecord(f"line {line}: field {count + 1} is not CSV; {_HINT}", details={"line": line})
            if count != len(self._names):
                problem = f"it has {count} field(s), the header has {len(self._names)}"
                raise InvalidRecord(f"line {line}: {problem}", details={"line": line})


def _column(field: Field, texts: pa.Table, place: int | None, target: pa.DataType) -> pa.Array:
    if place is None:
        return pa.nulls(texts.num_rows, target)
    column = texts.column(place).combine_chunks()
    values = read_texts(field.type, column, target)
    if field.required and values.null_count:
        misfit = InvalidValue(f"a value is required here; send a value of type {field.type}")
        raise InvalidText(column.is_null().index(True).as_py(), misfit)
    return values


def _column_names(record: bytes, line: int) -> list[str]:
    text = decoded(record, line)
    # csv.Error comes from a name that is longer than any column's.
    with contextlib.suppress(csv.Error):
        if _count_fields(record)[1]:
            return next(csv.reader([text]))
    raise InvalidRecord(f"line {line}: the header is not CSV; {_HINT}", details={"line": line})


def _count_fields(record: bytes) -> tuple[int, bool]:
    """How many well-formed fields a record starts with, and whether these are the whole record."""
    count, place = 0, 0
    while found := _FIELD.match(record, place):
        count, place = count + 1, found.end() + 1
        if found.end() == len(record):
            return count, True
    return count, False


def _records(block: Block) -> Iterator[tuple[int, bytes, int]]:
    """Each record with the number of its first line and its end; slow, only for the header and for errors."""
    line = block.line
    for found in _RECORD.finditer(block.text):
        record = found[0].removesuffix(b"\n").removesuffix(b"\r")
        if record:
            yield line, record, found.end()
        line += found[0].count(b"\n")


def _after_last_record(text: bytes) -> int:
    """The position after the last line break outside of quotes, that is, with an even number of quotes before it."""
    end = text.rfind(b"\n") + 1
    if text.count(b'"', 0, end) % 2 == 0:
        return end
    whole = _WHOLE_RECORDS.match(text)
    return whole.end() if whole else 0
