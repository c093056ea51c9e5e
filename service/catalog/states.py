"""What a table's metadata says of its states: which a tag names, and how far back they reach."""

from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType

from service.errors import SnapshotNotFound, nearest

_SHOWN = 10


def tagged(metadata: TableMetadata, table: str, name: str, field: str) -> int:
    """The snapshot that a tag of this name keeps; SnapshotNotFound offers the tags there are."""
    tags = {tag: ref for tag, ref in metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG}
    if name in tags:
        return tags[name].snapshot_id
    near = nearest(name, tags)
    if near:
        hint = f"did you mean {near!r}?"
    else:
        hint = f"it has {', '.join(sorted(tags)[-_SHOWN:])}" if tags else "it has none"
    raise SnapshotNotFound(f"{table} has no tag or backup {name[:80]!r}; {hint}", field=field, suggestion=near)


def oldest(metadata: TableMetadata) -> str:
    """Which snapshot is the oldest that can still be read, in words."""
    if not metadata.snapshots:
        return "nothing was ever committed to it"
    first = min(metadata.snapshots, key=lambda s: s.sequence_number or 0)
    made = datetime.fromtimestamp(first.timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    return f"the oldest it has is {first.snapshot_id}, of {made}"
