"""Find the state of a table that a request names. Every operation that takes a state finds it here."""

from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType

from service.catalog.refusals import LISTED, it_has, oldest_snapshot
from service.catalog.tables import Snapshot, Table
from service.errors import InvalidRequest, SnapshotNotFound, did_you_mean
from service.model.as_of import AsOf, moment


def snapshot_as_of(table: Table, value: AsOf, field: str = "as_of") -> Snapshot:
    """The snapshot with this id, or of this tag or backup, or the one that was current at this time.

    SnapshotNotFound if there is none. InvalidRequest if a text is the name of a tag, and also a time or the id of
    another snapshot.
    """
    named, metadata = moment(value), table.iceberg.metadata
    tagged = _tags(metadata).get(value) if isinstance(value, str) else None
    if isinstance(named, str):
        if tagged is None:
            raise _no_such_state(table, named, field)
        return table.snapshot(tagged, field)
    meant = named if isinstance(named, int) else _current_at(metadata, named)
    if tagged is not None and tagged != meant:
        if isinstance(named, int) and table.iceberg.snapshot_by_id(named) is None:
            return table.snapshot(tagged, field)
        raise _ambiguous(str(value), field, tagged, "snapshot id" if isinstance(named, int) else "time")
    if meant is None:
        assert isinstance(named, datetime)
        raise SnapshotNotFound(
            f"{table.name.table} has no snapshot from {named.isoformat()} or before; it held no data yet, or the "
            f"snapshot has expired; {oldest_snapshot(metadata)}",
            field=field,
        )
    return table.snapshot(meant, field)


def _current_at(metadata: TableMetadata, time: datetime) -> int | None:
    """The snapshot that was current at a time, if it is known."""
    millis = int(time.timestamp() * 1000)
    current = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= millis]
    return current[-1].snapshot_id if current else None


def _tags(metadata: TableMetadata) -> dict[str, int]:
    refs = metadata.refs.items()
    return {name: ref.snapshot_id for name, ref in refs if ref.snapshot_ref_type == SnapshotRefType.TAG}


def _no_such_state(table: Table, name: str, field: str) -> SnapshotNotFound:
    """For a name that no tag has. It may also be a misspelt time."""
    tags = sorted(_tags(table.iceberg.metadata))
    near, hint = did_you_mean(name, tags, it_has(tags[-LISTED:], "it has none"))
    return SnapshotNotFound(
        f"{field}: {name[:80]!r} is neither a snapshot id nor a time, such as 2024-01-31T12:00:00Z, and "
        f"{table.name.table} has no tag or backup {name[:80]!r}; {hint}",
        field=field,
        suggestion=near,
    )


def _ambiguous(name: str, field: str, tagged: int, other: str) -> InvalidRequest:
    """For the name of a tag that can be read as a time or an id, too."""
    way_out = "with hours and an offset, such as 2024-01-31T12:00:00Z" if other == "time" else "as a number"
    return InvalidRequest(
        f"{field}: {name[:80]!r} is the name of a tag and also a {other}; for the tag, send {tagged}, the id of its "
        f"snapshot; for the {other}, send it {way_out}",
        field=field,
        suggestion=str(tagged),
    )
