"""Choose the reader for a bulk load's media type; it returns checked batches in the table's own Arrow schema."""

from collections.abc import Callable, Iterator
from email.message import Message

import pyarrow as pa

from service.errors import InvalidRequest
from service.model.schema.types import TableSchema
from service.writes.bulk.body import Body
from service.writes.bulk.from_arrow import read_arrow, read_parquet
from service.writes.bulk.from_csv import read_csv
from service.writes.bulk.from_ndjson import read_ndjson
from service.writes.bulk.target import Keys

Decoder = Callable[[Body, TableSchema, Keys], Iterator[pa.RecordBatch]]
"""Decodes a body for a table and, for an upsert, its key columns."""

ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
NDJSON, CSV = "application/x-ndjson", "text/csv"
DECODERS: dict[str, Decoder] = {ARROW: read_arrow, NDJSON: read_ndjson, CSV: read_csv, PARQUET: read_parquet}


def decoder(content_type: str | None, content_encoding: str | None = None) -> Decoder:
    """The reader for a media type; InvalidRequest names those that are supported."""
    header = Message()
    header["Content-Type"] = content_type or ""
    kind = header.get_content_type() if content_type else ""
    found = DECODERS.get(kind)
    if found is None:
        sent = f"{content_type[:80]!r}" if content_type else "missing"
        raise InvalidRequest(f"Content-Type is {sent}; send {', '.join(DECODERS)}", field="Content-Type")
    charset = header.get_param("charset")
    if charset is not None and str(charset).lower() not in ("utf-8", "utf8"):
        raise InvalidRequest(f"Content-Type has charset {str(charset)[:80]!r}; send UTF-8", field="Content-Type")
    if str(header.get_param("header")).lower() == "absent":
        raise InvalidRequest("Content-Type says header=absent; send the columns' names first", field="Content-Type")
    if content_encoding and content_encoding.lower() != "identity":
        raise InvalidRequest(
            f"Content-Encoding is {content_encoding[:80]!r}; send the body without one "
            "(an Arrow stream may use its own compression by lz4 or zstd)",
            field="Content-Encoding",
        )
    return found
