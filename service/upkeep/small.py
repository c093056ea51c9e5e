"""What a compaction needs to know of one file: whether it is small, and which files it may be merged with."""

from typing import Any

from service.catalog.files import DataFile

_MUCH = 0.3
_NAN = float("nan")  # equal to itself only


def is_small(file: DataFile, small_bytes: int) -> bool:
    """Whether a file counts as small; one of which much is deleted does, whatever its size."""
    # As Iceberg has it, which makes COMPACT's plan.
    return file.bytes < small_bytes or (file.deleted > 0 and file.deleted >= _MUCH * file.rows)


def group_of(file: DataFile) -> tuple[Any, ...]:
    """A file's group, equal for all files of one partition: also where its value is no number."""
    return tuple(_NAN if value != value else value for value in file.group)
