"""Folders that are one table's alone, removed with all that lies in them."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from pyarrow.fs import FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

# What Firn calls a table's folder: in its namespace's, with an ending that no other table, past or present, has had.
_OF_ONE_TABLE = re.compile(r".+/[^/]+/[^/]+-[0-9a-f]{12}")


def remove_folder(location: str, properties: Mapping[str, str]) -> None:
    """Remove a table's folder, with the checksums, failed files and whatever else no metadata names in it.

    `properties` are those of the way to its storage. Elsewhere than on this machine only a folder that Firn made is
    removed: nobody else's can lie in it.
    """
    if location.startswith("file://"):
        shutil.rmtree(Path(location.removeprefix("file://")), ignore_errors=True)
    elif _OF_ONE_TABLE.fullmatch(location.rstrip("/")):
        _remove_remote(location.rstrip("/"), properties)


def _remove_remote(location: str, properties: Mapping[str, str]) -> None:
    scheme, host, path = PyArrowFileIO.parse_location(location)
    storage = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, host)
    if storage.get_file_info(path).type == FileType.Directory:
        storage.delete_dir(path)
