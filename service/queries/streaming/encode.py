"""Encode Arrow batches as the bytes of a response, in chunks of a reasonable size."""

import io
from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa

from service.engine.session.rows import not_utf8
from service.queries.streaming import csv
from service.queries.streaming.accept import Form

_CHUNK = 256 * 1024


def encode(form: Form, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[bytes, None, None]:
    """The bytes of the response; the names of the columns are in it even if there are no rows."""
    waiting: list[bytes] = []
    size = 0
    for part in (_csv if form == "csv" else _arrow)(schema, batches):
        waiting.append(part)
        size += len(part)
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    yield csv.header(schema.names)
    for batch in batches:
        yield csv.lines(_checked(batch))


def _arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    # Not passed on as it is: Java omits the offsets of empty lists, which some readers do not accept.
    sink = io.BytesIO()

    def written() -> bytes:
        data = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return data

    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(_checked(batch))
            yield written()
    yield written()


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as e:
        if "UTF8" in str(e):
            raise not_utf8() from e
        raise
    return batch
