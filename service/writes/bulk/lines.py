"""A body of text as blocks of whole lines, each with the number of its first line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.bulk.body import Body
from service.errors import InvalidRecord, InvalidRequest

_PIECE = 1 << 20
_LONGEST = 16 << 20
_MARK = b"\xef\xbb\xbf"  # some editors begin a file with it


@dataclass(frozen=True)
class Block:
    """Whole records; `line` is where the first one begins, counted from 1."""

    text: bytes
    line: int


def blocks(body: Body, end: Callable[[bytes], int]) -> Iterator[Block]:
    """The body cut where records end: `end` says after how many bytes of a text its last whole record does, or 0."""
    line = 1
    waiting = bytes(body.read(_PIECE)).removeprefix(_MARK)
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


def after_last_line(text: bytes) -> int:
    return text.rfind(b"\n") + 1


def decoded(raw: bytes, line: int) -> str:
    """The text, or a refusal that names the line."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        at = line + raw.count(b"\n", 0, e.start)
        raise InvalidRequest(
            f"line {at}: the body is not UTF-8: byte {raw[e.start]:#04x} cannot be read; send UTF-8",
            details={"line": at},
        ) from e
