"""Fetch a file in one pass: its hash, facts about its text, and a copy if Spark cannot read it where it is."""

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa

from service.catalog.files.source_files import opened, version_of
from service.errors import FirnError, InvalidFile
from service.ingest.sources.roots import is_remote
from service.ingest.sources.text import BOM, TextFacts, TextScan

Format = Literal["csv", "json", "parquet", "arrow"]
_CHUNK = 4 << 20
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SUFFIXES: dict[str, Format] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    ".parquet": "parquet",
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
}
_PACKED = (".gz", ".gzip", ".zst", ".zstd")
_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}

# What the names of this process's folders begin with.
_PROCESS = f"{uuid.uuid4().hex}-"


@dataclass(frozen=True)
class Source:
    """A file to ingest: where it is, and what to call it."""

    place: str
    """An absolute path, or an `s3://` URL."""
    name: str
    """How the table's rows and the log name it."""


@dataclass(frozen=True)
class FetchedFile:
    """A file on the local disk, and what one pass over its bytes found out."""

    source: Source
    path: Path
    bytes: int
    """The size of the source, before it is unpacked."""
    content_hash: str
    """The SHA-256 of the source's bytes."""
    modified_ms: int
    format: Format
    facts: TextFacts | None = None
    """About a text in UTF-8."""


@contextmanager
def working_folder(spool: Path) -> Iterator[Path]:
    """A folder for the temporary files of one ingest, for the block."""
    folder = new_folder(spool)
    try:
        yield folder
    finally:
        remove_folder(folder)


def new_folder(spool: Path) -> Path:
    """A new folder for temporary files of this process."""
    folder = spool / f"{_PROCESS}{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    return folder


def remove_leftovers(spool: Path) -> None:
    """Remove what a process that was killed left in the spool folder. Requests may have come to this one already."""
    if spool.is_dir():
        for folder in spool.iterdir():
            if not folder.name.startswith(_PROCESS):
                remove_folder(folder)


def fetch(
    source: Source,
    folder: Path,
    properties: Mapping[str, str],
    *,
    quote: str,
    encoding: str = "utf-8",
    progress: Callable[[int], object] = lambda size: None,
) -> FetchedFile:
    """Read a file once. `progress` is called with the number of bytes read, and may raise to stop.

    A file that Spark can read where it is, is not copied. InvalidFile if it cannot be read, or changes meanwhile.
    """
    try:
        before = version_of(source.place, properties)
        fetched = _Fetch(source, folder, quote, encoding, progress).run(properties)
        after = version_of(source.place, properties)
    except FirnError:
        raise
    except (OSError, EOFError, pa.ArrowException) as e:
        raise _unreadable(source, e) from e
    if (fetched.bytes, after) != (before[0], before):
        raise InvalidFile(f"{source.name!r} changed while it was read; send it again once it is complete")
    return replace(fetched, modified_ms=before[1])


def check_unchanged(file: FetchedFile) -> None:
    """Raise InvalidFile if a file that Spark reads where it is was changed since it was hashed."""
    if str(file.path) != file.source.place:
        return
    with suppress(OSError):
        if version_of(str(file.path), {}) == (file.bytes, file.modified_ms):
            return
    raise InvalidFile(f"{file.source.name!r} changed while it was read; send it again once it is complete")


class _Fetch:
    """One pass over the bytes of a source."""

    def __init__(
        self, source: Source, folder: Path, quote: str, encoding: str, progress: Callable[[int], object]
    ) -> None:
        self._source, self._folder, self._quote = source, folder, quote
        self._is_utf8 = encoding.lower() == "utf-8"
        self._progress = progress
        self._hash = hashlib.sha256()
        self._hashed: Future[None] | None = None
        self._size = 0

    def run(self, properties: Mapping[str, str]) -> FetchedFile:
        # Python hashes without its lock, so a second thread does it beside the rest.
        with opened(self._source.place, properties) as stream, ThreadPoolExecutor(1, "firn-hash") as self._hasher:
            first = stream.read(_CHUNK)
            compression = next((name for magic, name in _COMPRESSIONS.items() if first.startswith(magic)), None)
            counted = _Tee(first, stream, self._read)
            unpacked: Any = nullcontext(counted)
            if compression:
                unpacked = pa.CompressedInputStream(pa.PythonFile(cast(Any, counted), "r"), compression)
            with unpacked as content:
                format, path, facts = self._consume(content, copies=bool(compression))
            # What follows the end of the packed data belongs to the file's content, too.
            while counted.read(_CHUNK):
                pass
        return FetchedFile(self._source, path, self._size, self._hash.hexdigest(), 0, format, facts)

    def _read(self, chunk: bytes) -> None:
        if self._hashed is not None:
            self._hashed.result()
        self._hashed = self._hasher.submit(self._hash.update, chunk)
        self._size += len(chunk)
        self._progress(self._size)

    def _consume(self, content: Any, *, copies: bool) -> tuple[Format, Path, TextFacts | None]:
        chunk = bytes(content.read(_CHUNK))
        format = _format(self._source.name, chunk)
        scan = None
        if format in ("csv", "json") and self._is_utf8:
            scan = TextScan(self._quote if format == "csv" else None)
        copies = copies or is_remote(self._source.place)
        path = self._folder / f"{uuid.uuid4().hex}.{format}" if copies else Path(self._source.place)
        copy: Any = path.open("wb", buffering=0) if copies else nullcontext()
        with copy as out:
            while chunk:
                if scan is not None:
                    scan.feed(chunk)
                if out is not None:
                    out.write(chunk)
                chunk = bytes(content.read(_CHUNK))
        return format, path, scan.facts() if scan else None


class _Tee:
    """A stream that passes on what it reads."""

    closed = False

    def __init__(self, first: bytes, rest: BinaryIO, passed: Callable[[bytes], None]) -> None:
        self._first, self._rest, self._passed = first, rest, passed

    def read(self, size: int = -1) -> bytes:
        size = _CHUNK if size < 0 else size
        if self._first:
            chunk, self._first = self._first[:size], self._first[size:]
        else:
            chunk = self._rest.read(size)
        self._passed(chunk)
        return chunk

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _format(name: str, start: bytes) -> Format:
    """The format of a file by its first bytes or, for text, by its name; CSV if neither tells."""
    for magic, format in _MAGIC.items():
        if start.startswith(magic):
            return format
    plain = name.lower()
    for packed in _PACKED:
        plain = plain.removesuffix(packed)
    named = _SUFFIXES.get(os.path.splitext(plain)[1])
    if named in ("parquet", "arrow"):
        raise InvalidFile(f"{name!r} is not {'a Parquet' if named == 'parquet' else 'an Arrow'} file, as its name says")
    text = start.removeprefix(BOM).lstrip()
    if re.match(rb"\[\s*\{\s*\"", text):
        raise InvalidFile(f"{name!r} is a JSON array; send one JSON object per line")
    return named or ("json" if re.match(rb'\{\s*["}]', text) else "csv")


def _unreadable(source: Source, error: Exception) -> InvalidFile:
    if isinstance(error, FileNotFoundError):
        return InvalidFile(f"{source.name!r} does not exist; send the path of a file that the service can read")
    if isinstance(error, IsADirectoryError):
        return InvalidFile(f"{source.name!r} is a folder; send a file")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return InvalidFile(f"{source.name!r} cannot be read: {reason[:300]}")


def remove_folder(folder: Path) -> None:
    """Remove a folder of temporary files."""
    shutil.rmtree(folder, ignore_errors=True)
