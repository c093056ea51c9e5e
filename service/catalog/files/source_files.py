"""List the files of a folder that Firn reads but does not own: a local folder, or a prefix in S3."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from service.catalog.translate import translated


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that can be ingested; `name` is its path below the folder."""

    folder: str
    name: str
    bytes: int
    modified_ms: int

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"


def source_files(folder: str, properties: Mapping[str, str], *, nested: bool = False) -> list[SourceFile]:
    """The files in a folder, and with `nested` in those inside it, in order of their names; none if it does not exist.

    `properties` are those of the catalog's storage, with its credentials.
    """
    with translated():
        base = folder.rstrip("/")
        listed = _remote(base, properties, nested) if base.startswith("s3://") else _local(base, nested)
        return sorted(listed, key=lambda file: file.name)


def _local(folder: str, nested: bool, below: str = "") -> Iterator[SourceFile]:
    try:
        entries = list(os.scandir(Path(folder) / below))
    except FileNotFoundError:
        return
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        with suppress(FileNotFoundError):  # removed in the meantime
            if entry.is_file():
                found = entry.stat()
                yield SourceFile(folder, name, found.st_size, found.st_mtime_ns // 1_000_000)
            elif nested and entry.is_dir():
                yield from _local(folder, nested, name)


def _remote(folder: str, properties: Mapping[str, str], nested: bool) -> Iterator[SourceFile]:
    scheme, host, root = PyArrowFileIO.parse_location(folder)
    storage = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, host)
    for found in storage.get_file_info(FileSelector(root, allow_not_found=True, recursive=nested)):
        if found.type == FileType.File:
            name = found.path.removeprefix(root).lstrip("/")
            yield SourceFile(folder, name, found.size, (found.mtime_ns or 0) // 1_000_000)


@contextmanager
def opened(place: str, properties: Mapping[str, str]) -> Iterator[BinaryIO]:
    """The bytes of a file: an absolute path, or an `s3://` URL; FileNotFoundError if it does not exist."""
    if not place.startswith("s3://"):
        with Path(place).open("rb", buffering=0) as file:
            yield file
        return
    with translated():
        scheme, host, path = PyArrowFileIO.parse_location(place)
        stream = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, host).open_input_stream(path, compression=None)
    with stream:
        yield cast(BinaryIO, stream)


def version_of(place: str, properties: Mapping[str, str]) -> tuple[int, int]:
    """The size of a file and when it was changed, in milliseconds; FileNotFoundError if it does not exist."""
    if not place.startswith("s3://"):
        found = Path(place).stat()
        return found.st_size, found.st_mtime_ns // 1_000_000
    with translated():
        scheme, host, path = PyArrowFileIO.parse_location(place)
        info = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, host).get_file_info(path)
    if info.type != FileType.File:
        raise FileNotFoundError(place)
    return info.size, (info.mtime_ns or 0) // 1_000_000
