"""Backups: tags on the state before a change, whose names say when and for which operation they were made."""

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from service.catalog.files.data_files import list_files
from service.catalog.history import history
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.commit import Commits
from service.engine.iceberg.swap import Tag
from service.errors import BackupNotFound, InvalidRequest, did_you_mean
from service.model.call import Call
from service.model.names import BACKUP_PROPERTY
from service.model.properties import edit_policy
from service.model.times import HOUR_MS, now_ms, utc
from service.settings import EditSettings

DELETE = "DELETE_BACKUP"
_NAME = re.compile(r"backup-(\d{8}T\d{9})Z-([a-z_]+)-[0-9a-f]{8}")
_TIME = "%Y%m%dT%H%M%S%f"
_MOST_SHOWN = 5
# The end of the year 9999; a backup that is kept for longer has no end.
_LAST_MS = 253_402_300_799_999


@dataclass(frozen=True)
class Backup:
    """The state before a change, kept under a name."""

    name: str
    snapshot_id: int
    made_at: datetime
    operation: str
    """The operation before which it was made."""
    expires_at: datetime | None
    """Until when it is kept at least; None if it stays until it is deleted."""


@dataclass(frozen=True)
class BackupFigures:
    """What a backup holds, according to its snapshot's metadata."""

    records: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Backups:
    """Keeps the state of a table before a change of its rows."""

    settings: EditSettings
    catalog: Catalog
    commits: Commits

    def wanted(self, table: Table, create_backup: bool | None, hours: int | None, operation: str) -> Tag | None:
        """The tag for `swap` to put on the state before a change, if a backup is wanted.

        The table's own settings are the defaults. Before a table's first snapshot there is no state to keep: `swap`
        makes no tag then, and `backup_of` returns None.
        """
        policy = edit_policy(table.properties, self.settings)
        if policy.create_backup if create_backup is None else create_backup:
            now = now_ms()
            return Tag(named(operation, now), (hours or policy.backup_retention_hours) * HOUR_MS)
        if hours is not None:
            raise InvalidRequest(
                "backup_retention_hours has no meaning without a backup; send create_backup: true, or leave it out",
                field="backup_retention_hours",
            )
        return None

    def delete(self, table: Table, name: str, call: Call) -> None:
        """Delete a backup. An expiry deletes its files once nothing else needs them."""
        try:
            find(table, name)
        except BackupNotFound:
            if call.earlier is None:
                raise
            self.commits.earlier_batch(call)  # an earlier attempt with the same key found it
        else:
            self.commits.alter(table, DELETE, call, lambda current, batch: self.catalog.remove_tag(current, name))


def backups_of(table: Table) -> list[Backup]:
    """A table's backups, newest first."""
    past = history(table)
    made_ms = {version.snapshot_id: version.timestamp_ms for version in past.versions}
    found = [
        Backup(ref.name, ref.snapshot_id, *made, _end(made_ms[ref.snapshot_id], ref.max_age_ms))
        for ref in past.refs
        if ref.is_tag and ref.snapshot_id in made_ms and (made := parse_backup_name(ref.name))
    ]
    return sorted(found, key=lambda backup: (backup.made_at, backup.name), reverse=True)


def find(table: Table, name: str) -> Backup:
    """A table's backup of this name; BackupNotFound lists those that it has."""
    known = {backup.name: backup for backup in backups_of(table)}
    if name in known:
        return known[name]
    newest = f"its newest are {', '.join(list(known)[:_MOST_SHOWN])}" if known else "it has none"
    near, hint = did_you_mean(name, known, newest)
    raise BackupNotFound(
        f"table {table.name.table!r} has no backup {name[:80]!r}; {hint}", field="name", suggestion=near
    )


def figures(table: Table, backup: Backup) -> BackupFigures:
    """What a backup holds; with rows that are deleted by delete files that may apply to several data files."""
    summary = table.snapshot(backup.snapshot_id).summary
    totals = [summary.get(key) for key in ("total-records", "total-data-files", "total-files-size")]
    if all(totals) and summary.get("total-delete-files", "0") == "0":
        return BackupFigures(*(int(total) for total in totals if total))
    files = list_files(table, backup.snapshot_id)
    return BackupFigures(files.live_rows, len(files.data), files.bytes)


def backup_of(snapshot: Snapshot | None) -> str | None:
    """The backup that the change behind a snapshot made of the state before it, if it made one."""
    if snapshot is None or snapshot.parent_id is None:
        return None
    return snapshot.summary.get(BACKUP_PROPERTY)


def named(operation: str, now_ms: int) -> str:
    """A unique name for a backup made now, before an operation."""
    return f"backup-{utc(now_ms).strftime(_TIME)[:-3]}Z-{operation.lower()}-{secrets.token_hex(4)}"


def parse_backup_name(name: str) -> tuple[datetime, str] | None:
    """When a backup was made, and before which operation; None if the name is not a backup's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    try:
        moment = datetime.strptime(f"{found[1]}000", _TIME)
    except ValueError:  # a user's own name, with a 31st of February
        return None
    return moment.replace(tzinfo=UTC), found[2].upper()


def _end(made_ms: int, max_age_ms: int | None) -> datetime | None:
    if max_age_ms is None or made_ms + max_age_ms > _LAST_MS:
        return None
    return utc(made_ms + max_age_ms)
