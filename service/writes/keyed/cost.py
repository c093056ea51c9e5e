"""Which edits share a batch, and which files are written again with it. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.catalog.files.data_files import DataFile
from service.catalog.files.key_lookup import KeyHits
from service.engine.jobs.edits.row_level import SMALL_BYTES, TouchedFile, files_to_rewrite
from service.settings.kinds import RowLevel

# A batch reads and writes the whole content of such files, on one thread.
_FILE_BYTES, _FILE_ROWS = 4 << 20, 200_000
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 400_000
# A batch merges the newest files of a partition if they are at least so many, and together so few rows.
_MERGED_FILES, _MERGED_ROWS = range(8, 33), 10_000


@dataclass(frozen=True)
class FileChoice:
    """For each edit, whether it shares the batch; the files that those touch, and those that are written again."""

    shares: Sequence[bool]
    touched: frozenset[str]
    rewritten: frozenset[str]
    merged: Mapping[str, DataFile] = field(default_factory=dict)
    """Small files that are written again with them, even if no row of them changes."""


def choose_files(
    mode: RowLevel, touched: Sequence[Collection[str]], hits: KeyHits, *, merges: bool = True
) -> FileChoice:
    """`touched` has the files with rows that have the keys of each edit.

    Without delete files, edits of large files do not share a batch: Spark makes them, each in a commit of its own.
    """
    if mode == "copy_on_write":
        shares = share_rewrite(touched, hits.files)
        paths = frozenset(path for some, fits in zip(touched, shares, strict=True) if fits for path in some)
        return FileChoice(shares, paths, paths)
    paths = frozenset(path for some in touched for path in some)
    counts = {path: len(positions) for path, positions in hits.positions(paths).items()}
    files = {path: TouchedFile(hits.files[path].bytes, hits.files[path].live_rows, n) for path, n in counts.items()}
    again = sorted(files_to_rewrite(mode, files), key=lambda path: (files[path].bytes, path))
    fits = share_rewrite([[path] for path in again], hits.files)
    rewritten = frozenset(path for path, is_small in zip(again, fits, strict=True) if is_small)
    merged = {} if mode == "merge_on_read" or not merges else _small_files_beside(hits, rewritten, paths)
    return FileChoice([True] * len(touched), paths, rewritten, merged)


def _small_files_beside(hits: KeyHits, rewritten: Collection[str], touched: Collection[str]) -> dict[str, DataFile]:
    """The newest files of the partitions that a batch touches, if they are small and many: so a table that is changed
    row by row keeps few files. Only the newest, so that older rows stay in older files."""
    by_group: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    groups = {hits.files[path].group for path in touched}
    for file in hits.all_files:
        if file.group in groups:
            by_group[file.group].append(file)
    newest = [list(_newest_small(some, rewritten)) for some in by_group.values()]
    return {file.path: file for small in newest if len(small) in _MERGED_FILES for file in small}


def _newest_small(files: Iterable[DataFile], rewritten: Collection[str]) -> Iterator[DataFile]:
    """Files from the newest on, for as long as together they are small, and all their rows are known."""
    size = rows = 0
    newest = sorted(files, key=lambda file: (file.sequence_number, file.path), reverse=True)
    for file in newest[: _MERGED_FILES[-1]]:
        size, rows = size + file.bytes, rows + file.rows
        if size > SMALL_BYTES or rows > _MERGED_ROWS or (file.deletes and file.path not in rewritten):
            return
        yield file


def share_rewrite(touched: Sequence[Collection[str]], files: Mapping[str, DataFile]) -> list[bool]:
    """For each edit, given the files with rows of its keys, whether it can share a batch that writes them again."""
    taken: set[str] = set()
    size = rows = 0
    shares = []
    for paths in touched:
        new = [files[path] for path in paths if path not in taken]
        more_bytes, more_rows = size + sum(file.bytes for file in new), rows + sum(file.rows for file in new)
        fits = more_bytes <= _BATCH_BYTES and more_rows <= _BATCH_ROWS
        fits = fits and all(file.bytes <= _FILE_BYTES and file.rows <= _FILE_ROWS for file in new)
        shares.append(fits)
        if fits:
            taken.update(paths)
            size, rows = more_bytes, more_rows
    return shares
