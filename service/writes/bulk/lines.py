"""Read a body of text in blocks of whole lines, each with the number of its first line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.errors import InvalidRecord, InvalidRequest
from service.writes.bulk.body import Body

_PIECE = 1 << 20
_LONGEST = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it


@dataclass(frozen=True)
class Block:
    """Whole records; `line` is the number (1-based) of the line where the first one begins."""

    text: bytes
    line: int


def blocks(body: Body, end: Callable[[bytes], int]) -> Iterator[Block]:
    """Split the body between records; `end` returns the end of the last whole record in a text, or 0."""
    line = 1
    waiting = bytes(body.read(_PIECE)).removeprefix(_BYTE_ORDER_MARK)
    while waiting:
        cut = end(waiting)
        if cut:
            yield Block(waiting[:cut], line)
            line += waiting.count(b"\n", 0, cut)
            waiting = waiting[cut:]
        elif len(waiting) > _LONGEST:
            raise InvalidRecord(
                f"line {line}: the record that begins here is longer than {_LONGEST >> 20} MiB", details={"line": line}
            )
        more = body.read(_PIECE)
        if not more:
            break
        waiting += more
    if waiting:
        yield Block(waiting, line)


def decoded(raw: bytes, line: int) -> str:
    """The text; InvalidRequest names the line if it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        at = line + raw.count(b"\n", 0, e.start)
        raise InvalidRequest(
            f"line {at}: the body is not UTF-8: byte {raw[e.start]:#04x} cannot be read; send UTF-8",
            details={"line": at},
        ) from e
