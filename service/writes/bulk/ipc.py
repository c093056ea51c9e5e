"""Check each message of an Arrow IPC stream before Arrow unpacks it, so that none takes too much memory."""

import struct

from service.errors import InvalidRequest
from service.writes.bulk.body import Body

MOST_BYTES = 256 << 20
_MOST_METADATA = 16 << 20
_CONTINUES = b"\xff\xff\xff\xff"
_FILE = b"ARROW1"
_SMALLER = "send smaller record batches, of some ten thousand rows"
_UNREADABLE = "the body is not an Arrow IPC stream: a message cannot be read"
# Indices of fields in the format's flatbuffer tables.
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_DICTIONARY, _BATCH = 2, 3
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


class Messages:
    """A file object for Arrow's reader over a body that holds an IPC stream."""

    closed = False

    def __init__(self, body: Body) -> None:
        self._body = body
        self._head = memoryview(b"")
        self._metadata = memoryview(b"")
        self._body_bytes = 0
        self._ended = False

    def read(self, count: int = -1) -> memoryview:
        if self._head:
            piece, self._head = self._head[:count], self._head[count:]
            return piece
        if self._body_bytes:
            piece = self._body.read(min(count, self._body_bytes))
            if len(piece) == self._body_bytes:
                _refuse_inflated(self._metadata, piece)
            self._body_bytes -= len(piece)
            return piece
        if not self._ended:
            self._next()
        return self.read(count) if self._head else memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def finish(self) -> None:
        """Refuse data after the end of the stream."""
        if self._body.read(1):
            raise InvalidRequest("the body continues after the end of the Arrow stream; send one stream")

    def _next(self) -> None:
        start = bytes(self._body.read(8))
        if not start:
            self._ended = True
            return
        if start.startswith(_FILE):
            raise InvalidRequest(
                "the body is an Arrow file, which cannot be read as a stream; send an Arrow stream "
                "(pyarrow.ipc.new_stream)"
            )
        if len(start) < 8 or not start.startswith(_CONTINUES):
            raise InvalidRequest("the body is not an Arrow IPC stream")
        length = int.from_bytes(start[4:], "little", signed=True)
        if length == 0:
            self._ended = True
        elif not 0 < length <= _MOST_METADATA:
            raise InvalidRequest("the body is not an Arrow IPC stream: a message has an invalid length")
        self._metadata = memoryview(bytes(self._body.read(length)))
        if length:
            self._body_bytes = _body_length(self._metadata)
        if self._body_bytes > MOST_BYTES:
            raise InvalidRequest(
                f"a record batch of {self._body_bytes >> 20} MiB is more than the {MOST_BYTES >> 20} MiB that one may "
                f"have; {_SMALLER}"
            )
        self._head = memoryview(start + bytes(self._metadata))


def _body_length(metadata: memoryview) -> int:
    place = _Table(metadata, _unpack("<I", metadata)).place(_BODY_LENGTH)
    length = _unpack("<q", metadata, place) if place else 0
    if length < 0:
        raise InvalidRequest(_UNREADABLE)
    return length


def _refuse_inflated(metadata: memoryview, body: memoryview) -> None:
    """Refuse a message that unpacks to too much. Each compressed buffer begins with its unpacked length."""
    unpacked = sum(_unpacked(metadata, body))
    if unpacked > MOST_BYTES:
        raise InvalidRequest(
            f"a record batch unpacks to {unpacked >> 20} MiB, more than the {MOST_BYTES >> 20} MiB that one may have; "
            f"{_SMALLER}"
        )


def _unpacked(metadata: memoryview, body: memoryview) -> list[int]:
    """The lengths of a message's buffers when they are unpacked; none if it is not compressed."""
    message = _Table(metadata, _unpack("<I", metadata))
    kind, batch = message.place(_HEADER_TYPE), message.table(_HEADER)
    if kind and batch and metadata[kind] == _DICTIONARY:
        batch = batch.table(_DICTIONARY_DATA)
    elif not kind or metadata[kind] != _BATCH:
        return []
    if batch is None or not batch.place(_COMPRESSION) or not (start := batch.place(_BUFFERS)):
        return []
    vector = start + _unpack("<I", metadata, start)
    sizes = []
    for i in range(_unpack("<I", metadata, vector)):
        offset, length = (_unpack("<q", metadata, vector + at + 16 * i) for at in (4, 12))
        if length >= 8 and offset >= 0:
            # -1 means that this buffer is not compressed.
            size = _unpack("<q", body, offset)
            sizes.append(length if size < 0 else size)
    return sizes


class _Table:
    """A flatbuffer table, whose fields are found through a table of offsets."""

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._start = start
        self._offsets = start - _unpack("<i", data, start)
        if self._offsets < 0:
            raise InvalidRequest(_UNREADABLE)

    def place(self, field: int) -> int | None:
        """The position of a field's value; None if it is omitted."""
        if _unpack("<H", self._data, self._offsets) < 6 + 2 * field:
            return None
        offset = _unpack("<H", self._data, self._offsets + 4 + 2 * field)
        if self._start + offset >= len(self._data):
            raise InvalidRequest(_UNREADABLE)
        return self._start + offset if offset else None

    def table(self, field: int) -> "_Table | None":
        place = self.place(field)
        return _Table(self._data, place + _unpack("<I", self._data, place)) if place else None


def _unpack(form: str, data: memoryview, place: int = 0) -> int:
    try:
        number: int = struct.unpack_from(form, data, place)[0]
    except struct.error as e:
        raise InvalidRequest(_UNREADABLE) from e
    return number
