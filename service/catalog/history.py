"""A table's snapshots, branches and tags, and how long each of these is to be kept."""

from dataclasses import dataclass

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from service.catalog.tables import Table

_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_MAX_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
_MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot with its age, for the decision whether to keep it."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag. A branch keeps at least `min_snapshots` and every snapshot younger than its maximum age."""

    name: str
    snapshot_id: int
    min_snapshots: int = 1
    max_snapshot_age_ms: int | None = None
    max_age_ms: int | None = None
    """The branch or tag is removed when its snapshot is older than this."""
    is_tag: bool = False


@dataclass(frozen=True)
class History:
    """A table's snapshots in the order of their commits, and its branches and tags."""

    versions: tuple[Version, ...]
    refs: tuple[Ref, ...]
    current_id: int | None


def history(table: Table) -> History:
    """A table's history; the table's Iceberg properties are the defaults of its branches and tags."""
    metadata = table.iceberg.metadata
    in_order = sorted(metadata.snapshots, key=lambda s: s.sequence_number or 0)
    return History(
        tuple(Version(s.snapshot_id, s.parent_snapshot_id, s.timestamp_ms) for s in in_order),
        tuple(_ref(name, ref, table.properties) for name, ref in metadata.refs.items()),
        metadata.current_snapshot_id,
    )


def _ref(name: str, ref: SnapshotRef, properties: dict[str, str]) -> Ref:
    max_age = ref.max_ref_age_ms or _number(properties, _MAX_REF_AGE)
    if ref.snapshot_ref_type == SnapshotRefType.TAG:
        return Ref(name, ref.snapshot_id, max_age_ms=max_age, is_tag=True)
    return Ref(
        name,
        ref.snapshot_id,
        ref.min_snapshots_to_keep or _number(properties, _MIN_SNAPSHOTS) or 1,
        ref.max_snapshot_age_ms or _number(properties, _MAX_SNAPSHOT_AGE),
        None if name == "main" else max_age,
    )


def _number(properties: dict[str, str], key: str) -> int | None:
    text = properties.get(key, "")
    return int(text) if text.isdecimal() else None
