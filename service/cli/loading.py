"""Read a file to load: its format, its body as a bulk load takes it, and columns for a new table.

Nothing is held whole: CSV, NDJSON and Arrow streams are sent as they are, Parquet and Arrow files batch by batch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from service.cli.command import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 1 << 20
_SAMPLE = 1 << 20  # how much of a text file decides which types its columns have
_BATCH_ROWS = 16_384
_FORMATS = {
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".parquet": "parquet",
}
_PACKED = {".gz": "gzip", ".zst": "zstd"}
_MEDIA_TYPES = {"csv": "text/csv", "ndjson": "application/x-ndjson"}
_ARROW = "application/vnd.apache.arrow.stream"
OnSent = Callable[[int, int], None]
"""Called with the number of bytes that were read of the file, and of the rows in them."""


@dataclass(frozen=True)
class LoadFile:
    """A file to load."""

    path: Path
    format: str
    packed: str | None
    """How the file is compressed."""

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES.get(self.format, _ARROW)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def table(self) -> str:
        """The name of a table for it: its own, up to the first dot."""
        return self.path.name.partition(".")[0]

    def chunks(self, on_sent: OnSent) -> Iterator[bytes]:
        """The body, in pieces."""
        with _readable(self.path), self.path.open("rb") as file:
            if self.format in _MEDIA_TYPES:
                text, lines = self._unpacked(file), _Lines(quotes=self.format == "csv")
                while piece := bytes(text.read(_CHUNK)):
                    lines.count(piece)
                    on_sent(file.tell(), max(0, lines.ended - (self.format == "csv")))  # the first is the heading
                    yield piece
            else:
                schema, batches = self._batches(file)
                yield from _as_stream(schema, batches, lambda rows: on_sent(file.tell(), rows))

    def fields(self) -> dict[str, Any]:
        """The columns, as CREATE_TABLE takes them: those of the file, or those that its first lines look like."""
        import pyarrow as pa

        with self.path.open("rb") as file, _readable(self.path):
            schema = self._sampled(file) if self.format in _MEDIA_TYPES else self._batches(file)[0]
        if not schema.names:
            raise UsageError(f"{self.path} has no columns; it cannot be the model of a table")
        fields = {}
        for column in schema:
            # Values of a column that is null in all lines that were read may be anything.
            kind = pa.string() if pa.types.is_null(column.type) else column.type
            fields[column.name] = _field(kind, f"{self.path}: column {column.name!r}")
        return fields

    def _unpacked(self, file: BinaryIO) -> Any:
        if self.packed is None:
            return file
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), self.packed)

    def _batches(self, file: BinaryIO) -> "tuple[pa.Schema, Iterable[pa.RecordBatch]]":
        import pyarrow as pa

        if self.packed is not None and self.format == "parquet":
            raise UsageError(f"{self.path}: a Parquet file is compressed inside; unpack it first")
        with _readable(self.path):
            if self.format == "parquet":
                import pyarrow.parquet as pq

                parquet = pq.ParquetFile(file)
                return parquet.schema_arrow, parquet.iter_batches(_BATCH_ROWS)
            if self.packed is None and file.read(6) == b"ARROW1":
                file.seek(0)
                reader = pa.ipc.open_file(file)
                return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
            file.seek(0)
            stream = pa.ipc.open_stream(self._unpacked(file))
            return stream.schema, stream

    def _sampled(self, file: BinaryIO) -> "pa.Schema":
        import pyarrow as pa

        text, sample = self._unpacked(file), b""
        while piece := bytes(text.read(_SAMPLE)):
            sample += piece
            end = _end_of_records(sample, quotes=self.format == "csv")
            if len(sample) >= _SAMPLE and end > sample.find(b"\n") + 1:  # not the heading alone
                sample = sample[:end]
                break
        if self.format == "ndjson":
            from pyarrow import json

            options = json.ReadOptions(block_size=max(len(sample), 1))
            return json.read_json(pa.BufferReader(sample), options).schema
        return _csv_schema(sample)


def read_file(path: str, format: str | None) -> LoadFile:
    """A file to load, whose name says its format unless it is given."""
    file = Path(path)
    packed = _PACKED.get(file.suffix)
    suffix = file.with_suffix("").suffix if packed else file.suffix
    found = format or _FORMATS.get(suffix)
    if found is None:
        raise UsageError(f"{path}: the name does not say the format; use --format csv, ndjson, arrow or parquet")
    if not file.is_file():
        raise UsageError(f"{path} is not a file; check the path")
    return LoadFile(file, found, packed)


class _readable:
    """Translates the errors of a file that is not what its name says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        import pyarrow as pa

        if isinstance(error, pa.ArrowException | OSError):
            reason = " ".join(str(error).split())[:300]
            raise UsageError(f"{self._path} cannot be read: {reason}") from error


class _Pieces:
    """Collects what is written until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0
        self.closed = False

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


@dataclass
class _Lines:
    """Counts the lines of a text that is read in pieces. A line break within quotes ends none."""

    quotes: bool
    ended: int = 0
    _quoted: int = 0
    """1 if the piece before ended within quotes."""

    def count(self, piece: bytes) -> None:
        parts = piece.split(b'"') if self.quotes else [piece]
        self.ended += sum(part.count(b"\n") for part in parts[self._quoted :: 2])
        self._quoted = (self._quoted + len(parts) - 1) % 2


def _end_of_records(sample: bytes, *, quotes: bool) -> int:
    """Where the last whole record ends: at a line break and, in CSV, at one outside of quotes; 0 if there is none."""
    end = sample.rfind(b"\n") + 1
    before = sample.count(b'"', 0, end)
    while quotes and end and before % 2:
        shorter = sample.rfind(b"\n", 0, end - 1) + 1
        before -= sample.count(b'"', shorter, end)
        end = shorter
    return end


def _csv_schema(sample: bytes) -> "pa.Schema":
    """The types that the columns of a CSV file look like. Digits that begin with a zero are a code: text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    reading = csv.ReadOptions(block_size=max(len(sample), 1))  # one block: the first one decides about types
    parsing = csv.ParseOptions(newlines_in_values=True)
    schema = csv.read_csv(pa.BufferReader(sample), reading, parsing).schema
    as_text = csv.ConvertOptions(column_types={each.name: pa.string() for each in schema})
    texts = csv.read_csv(pa.BufferReader(sample), reading, parsing, as_text)
    for i, column in enumerate(schema):
        if pa.types.is_integer(column.type) and pc.any(pc.match_substring_regex(texts[i], "^0[0-9]")).as_py():
            schema = schema.set(i, column.with_type(pa.string()))
    return schema


def _as_stream(
    schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", on_rows: Callable[[int], None]
) -> Iterator[bytes]:
    import pyarrow as pa

    sink, rows = _Pieces(), 0
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            on_rows(rows)
            yield sink.take()
    yield sink.take()


def _field(kind: "pa.DataType", where: str) -> Any:
    """The type of a column, as CREATE_TABLE takes it."""
    import pyarrow as pa

    is_ = pa.types
    if is_.is_dictionary(kind):
        return _field(kind.value_type, where)
    if is_.is_map(kind):
        key, value = _field(kind.key_type, where), _field(kind.item_type, where)
        return {"type": "map", "key_type": key["type"], "value_type": _inner(value)}
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return {"type": "array", "items": _inner(_field(kind.value_type, where))}
    if is_.is_struct(kind):
        return {"type": "struct", "fields": {each.name: _field(each.type, where) for each in kind}}
    if is_.is_timestamp(kind):
        return {"type": "timestamptz" if kind.tz else "timestamp"}
    if is_.is_decimal(kind):
        return {"type": f"decimal({kind.precision},{kind.scale})"}
    for fits, name in (
        (is_.is_boolean, "boolean"),
        (lambda k: (is_.is_integer(k) and k.bit_width < 32) or k == pa.int32(), "integer"),
        (is_.is_integer, "long"),
        (lambda k: k in (pa.float16(), pa.float32()), "float"),
        (is_.is_floating, "double"),
        (is_.is_date, "date"),
        (lambda k: is_.is_string(k) or is_.is_large_string(k) or is_.is_string_view(k) or is_.is_null(k), "string"),
        (lambda k: is_.is_binary(k) or is_.is_large_binary(k) or is_.is_fixed_size_binary(k), "binary"),
    ):
        if fits(kind):
            return {"type": name}
    raise UsageError(f"{where} has the type {kind}, which no table has; create the table with `firn table create`")


def _inner(field: Any) -> Any:
    """The type of an item: its name if that is all there is."""
    return field["type"] if len(field) == 1 else field
