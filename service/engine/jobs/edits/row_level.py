"""Whether a data file with deleted or changed rows is written again, or gets a delete file. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.settings.kinds import RowLevel

# Writing so much again takes no longer than the commit.
SMALL_BYTES, _SMALL_ROWS = 1 << 20, 20_000
# The part of a file's rows from which on writing the others again is worth what it saves readers.
_MANY = 1 / 3


@dataclass(frozen=True)
class TouchedFile:
    """A data file with rows that an edit deletes or changes."""

    bytes: int
    rows: int
    """Those that are not deleted."""
    hits: int
    """Those that the edit deletes or changes."""


def files_to_rewrite(mode: RowLevel, files: Mapping[str, TouchedFile]) -> frozenset[str]:
    """The files to write again without the rows; the others get delete files."""
    if mode == "merge_on_read":
        return frozenset()
    if mode == "copy_on_write":
        return frozenset(files)
    chosen, size, rows = {path for path, file in files.items() if file.hits > _MANY * file.rows}, 0, 0
    for path, file in sorted(files.items(), key=lambda one: (one[1].bytes, one[0])):
        size, rows = size + file.bytes, rows + file.rows
        if size >= SMALL_BYTES or rows > _SMALL_ROWS:
            break
        chosen.add(path)
    return frozenset(chosen)
