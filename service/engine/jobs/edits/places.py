"""The places of the rows that an edit affects: by file, as positions or, from Spark, as bitmaps."""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.sql.edit_sql import BITMAP_ROWS


@dataclass(frozen=True)
class FoundPlaces:
    """The places of rows. Bitmaps take a bit for each row of a file at most, however many rows were found."""

    bitmaps: pa.Table | None = None
    """`file`, `bucket` and `bits`: the positions in a range of a file's rows."""
    rows: pa.Table | None = None
    """`file` and `pos`: one place."""

    def in_files(self, paths: Collection[str]) -> dict[str, pa.Array]:
        """The positions in each of these files."""
        wanted = pa.array(list(paths), pa.string())
        if self.rows is not None:
            return _by_file(self.rows.filter(pc.is_in(self.rows["file"], value_set=wanted)))
        if self.bitmaps is None:
            return {}
        found: dict[str, list[pa.Array]] = {}
        some = self.bitmaps.filter(pc.is_in(self.bitmaps["file"], value_set=wanted))
        for file, bucket, bits in zip(*(some[name].to_pylist() for name in ("file", "bucket", "bits")), strict=True):
            found.setdefault(file, []).append(_positions(bucket, bits))
        return {file: pa.concat_arrays(parts) for file, parts in found.items()}


def _by_file(rows: pa.Table) -> dict[str, pa.Array]:
    """The distinct positions of each file."""
    grouped = rows.select(["file", "pos"]).group_by("file").aggregate([("pos", "distinct")])
    positions = grouped["pos_distinct"].to_pylist()
    return {file: pa.array(some, pa.int64()) for file, some in zip(grouped["file"].to_pylist(), positions, strict=True)}


def _positions(bucket: int, bits: bytes) -> pa.Array:
    # Spark numbers the bits of a byte as Arrow does: from the lowest.
    is_set = pa.BooleanArray.from_buffers(pa.bool_(), len(bits) * 8, [None, pa.py_buffer(bits)])
    return pc.add(pc.indices_nonzero(is_set).cast(pa.int64()), bucket * BITMAP_ROWS)
