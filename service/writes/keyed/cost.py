"""Which edits share a batch, and which of the files that they touch are written again with it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from service.catalog.files.data_files import DataFile
from service.catalog.files.key_lookup import KeyHits
from service.engine.jobs.edits.row_level import TouchedFile, files_to_rewrite
from service.settings.kinds import RowLevel

# A batch reads and writes the whole content of such files, on one thread.
_FILE_BYTES, _FILE_ROWS = 4 << 20, 200_000
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 400_000


@dataclass(frozen=True)
class FileChoice:
    """For each edit, whether it shares the batch; the files that those touch, and those that are written again."""

    shares: Sequence[bool]
    touched: frozenset[str]
    rewritten: frozenset[str]


def choose_files(mode: RowLevel, touched: Sequence[Collection[str]], hits: KeyHits) -> FileChoice:
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
    again = files_to_rewrite(mode, files)
    [small] = share_rewrite([again], hits.files)
    return FileChoice([True] * len(touched), paths, again if small else frozenset())


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
