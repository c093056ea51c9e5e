"""Remove the folder of one table with everything in it."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from pyarrow.fs import FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

# How Firn names a table's folder: inside its namespace's, with a suffix that no other table has or had.
_OF_ONE_TABLE = re.compile(r".+/[^/]+/[^/]+-[0-9a-f]{12}")


def remove_folder(location: str, properties: Mapping[str, str]) -> None:
    """Remove a table's folder, with the checksums, failed files and other files in it that no metadata names.

    `properties` are those of its storage. In remote storage only a folder that Firn created is removed, because another
    program may keep other files in its own.
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
