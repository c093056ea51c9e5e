"""Encode Arrow batches as the bytes of a response, in chunks of a reasonable size."""

import io
from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa

from service.engine.session.rows import not_utf8
from service.queries.streaming import csv
from service.queries.streaming.accept import Form

_CHUNK = 256 * 1024


def encode(form: Form, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[bytes, None, None]:
    """The response's bytes. Even without rows they hold the names of the columns."""
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
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(_checked(batch))
            yield sink.take()
    yield sink.take()


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as e:
        if "UTF8" in str(e):
            raise not_utf8() from e
        raise
    return batch


class _Sink(io.RawIOBase):
    """Collects the bytes of a writer until they are taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))  # type: ignore[arg-type]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken
