"""List and delete the files in a table's folder, whatever created them."""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from service.catalog.tables import Table
from service.catalog.translate import translated

log = logging.getLogger("firn.storage")

_OF_COMPACTION = re.compile(r"compact-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a table's folder; `path` is relative to it."""

    path: str
    bytes: int
    modified_ms: int


def stored_files(table: Table) -> list[StoredFile]:
    """Every file under a table's location, hidden ones included. Links are not followed."""
    with translated():
        if is_local(table.location):
            return list(_local_files(_path(table.location)))
        return list(_remote_files(table))


def is_local(location: str) -> bool:
    """Whether a location is on a local or mounted file system."""
    return location.startswith(("file:", "/"))


def unlink(locations: Iterable[str]) -> int:
    """Delete local files with their Hadoop checksums; return how many existed."""
    deleted = 0
    for location in locations:
        path = _path(location)
        try:
            path.unlink()
            deleted += 1
        except FileNotFoundError:
            pass
        except OSError as e:
            log.warning("%s could not be deleted: %s", path, e)
            continue
        with suppress(OSError):
            path.with_name(checksum_name(path.name)).unlink()
        _remove_if_empty(path.parent)
    return deleted


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder of a compaction, and those inside it, with its last file. Each has its own folder."""
    inside = [folder, *folder.parents]
    last = next((i for i, path in enumerate(inside) if _OF_COMPACTION.fullmatch(path.name)), -1)
    with suppress(OSError):  # not empty
        for path in inside[: last + 1]:
            path.rmdir()


def checksum_name(name: str) -> str:
    """The name of the file in which Hadoop keeps the checksums of a file."""
    return f".{name}.crc"


def checksummed_file(path: str) -> str | None:
    """The file whose checksums this file holds; None if it is not a checksum file."""
    folder, _, name = path.rpartition("/")
    if not (name.startswith(".") and name.endswith(".crc") and len(name) > len(checksum_name(""))):
        return None
    checked = name.removeprefix(".").removesuffix(".crc")
    return f"{folder}/{checked}" if folder else checked


def read_start(table: Table, path: str, size: int) -> bytes:
    """The first bytes of a file in a table's folder; none if the file is gone."""
    file = table.iceberg.io.new_input(f"{table.location.rstrip('/')}/{path}")
    with translated(), suppress(FileNotFoundError), file.open() as stream:
        return stream.read(size)
    return b""


def _local_files(root: Path, below: str = "") -> Iterator[StoredFile]:
    try:
        entries = list(os.scandir(root / below))
    except FileNotFoundError:  # removed in the meantime, or never there
        return
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                yield from _local_files(root, path)
            elif entry.is_file(follow_symlinks=False) and _is_text(path):
                found = entry.stat(follow_symlinks=False)
                yield StoredFile(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _is_text(path: str) -> bool:
    """Whether the name is valid UTF-8; if not, neither metadata nor a response can name the file."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _remote_files(table: Table) -> Iterator[StoredFile]:
    location = table.location.rstrip("/")
    # PyIceberg's only file access that can list files.
    io = PyArrowFileIO(table.iceberg.io.properties)
    scheme, host, root = PyArrowFileIO.parse_location(location)
    storage = io.fs_by_scheme(scheme, host)
    for found in storage.get_file_info(FileSelector(root, allow_not_found=True, recursive=True)):
        # A file of unknown age never counts as old.
        if found.type == FileType.File and found.mtime_ns is not None:
            path = found.path.removeprefix(root).lstrip("/")
            yield StoredFile(path, found.size, found.mtime_ns // 1_000_000)


def _path(location: str) -> Path:
    return Path(re.sub(r"^(file:)?/*", "/", location))
