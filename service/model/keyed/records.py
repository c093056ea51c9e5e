"""What the ledger keeps of the requests that share a commit with edits: what each did, and which rows it moved."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from service.model.keyed.apply import AppliedChanges
from service.model.keyed.changes import RowCounts

_COUNTS = b"firn_counts"


@dataclass(frozen=True)
class RequestPart:
    """What one request did in a commit that it shares."""

    operation: str
    counts: RowCounts
    files: int = 0
    """Data files with rows that it changed."""
    partitions: int = 0
    scanned_files: int = 0
    key: str | None = None
    """The id of its idempotency key."""


def rows_written(parts: Sequence[RequestPart]) -> int:
    """How many rows some requests brought, and how many they gave new values."""
    return sum(part.counts.inserted + part.counts.updated for part in parts)


def write_parts(parts: Sequence[RequestPart]) -> str:
    return json.dumps([asdict(part) for part in parts])


def read_parts(text: str | None) -> tuple[RequestPart, ...]:
    return tuple(RequestPart(**{**one, "counts": RowCounts(**one["counts"])}) for one in json.loads(text or "[]"))


@dataclass(frozen=True)
class RequestRows:
    """The rows that each request of a commit removed and added, in the order of the requests."""

    counts: Mapping[str, Sequence[int]]
    """How many rows each request `removed` and `added`."""
    removed: pa.Table
    added: pa.Table
    schema_id: int
    """The schema of the columns."""
    until_ms: int

    def of(self, side: str, requests: Sequence[int]) -> pa.Table:
        """The rows that some requests `removed` or `added`."""
        rows: pa.Table = getattr(self, side)
        starts = [sum(self.counts[side][:n]) for n in requests]
        parts = [rows.slice(start, self.counts[side][n]) for start, n in zip(starts, requests, strict=True)]
        return pa.concat_tables([rows.schema.empty_table(), *parts])

    def stored(self, batch: str) -> dict[str, Any]:
        """The values of a row of the ledger."""
        return {"batch": batch, "rows": self.packed(), "schema_id": self.schema_id, "until_ms": self.until_ms}

    def packed(self) -> bytes:
        """Everything but `schema_id` and `until_ms`."""
        rows = pa.concat_tables([self.removed, self.added])
        rows = rows.replace_schema_metadata({_COUNTS: json.dumps(self.counts).encode()})
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue().to_pybytes())


def rows_of(applied: AppliedChanges, schema_id: int, until_ms: int) -> RequestRows:
    """The rows of changes that were applied."""
    (removed, old), (added, new) = applied.rows_of("removed"), applied.rows_of("added")
    return RequestRows({"removed": removed, "added": added}, old, new, schema_id, until_ms)


def read_rows(packed: bytes, schema_id: int, until_ms: int) -> RequestRows:
    with pa.ipc.open_stream(packed) as reader:
        rows = reader.read_all()
    counts: dict[str, Any] = json.loads((rows.schema.metadata or {})[_COUNTS])
    rows = rows.replace_schema_metadata()
    gone = sum(counts["removed"])
    return RequestRows(counts, rows.slice(0, gone), rows.slice(gone), schema_id, until_ms)
