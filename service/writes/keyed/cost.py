"""Whether the files that edits touch are rewritten with their batch: only if they are small."""

from collections.abc import Collection, Mapping, Sequence

from service.catalog.files.data_files import DataFile

# A batch reads and writes the whole content of the files that it touches, on one thread.
_FILE_BYTES, _FILE_ROWS = 4 << 20, 200_000
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 400_000


def share_rewrite(touched: Sequence[Collection[str]], files: Mapping[str, DataFile]) -> list[bool]:
    """For each edit, given the files that hold rows with its keys, whether it can share a batch that rewrites them.

    The others are made by Spark, each in a commit of its own.
    """
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
