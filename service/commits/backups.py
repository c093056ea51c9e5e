"""Backups: tags on the state before a change, which say by their names when and for what they were made."""

import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from service.catalog.files.data_files import list_files
from service.catalog.history import Ref, history
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.commit import Commits
from service.engine.iceberg.swap import Tag
from service.errors import BackupNotFound, InvalidRequest, nearest
from service.model.call import Call
from service.model.names import BACKUP_PROPERTY
from service.model.properties import edit_policy
from service.settings import EditSettings

DELETE = "DELETE_BACKUP"
_HOUR_MS = 3_600_000
_NAME = re.compile(r"backup-(\d{8}T\d{9})Z-([a-z_]+)-[0-9a-f]{8}")
_TIME = "%Y%m%dT%H%M%S%f"
_SHOWN = 5
# The end of the year 9999; what is kept for longer is kept for ever.
_LAST_MS = 253_402_300_799_999


@dataclass(frozen=True)
class Backup:
    """The state before a change, kept under a name."""

    name: str
    snapshot_id: int
    made_at: datetime
    operation: str
    """Before which kind of change."""
    expires_at: datetime | None
    """Until when it is kept at least; None of one that nothing ends but its deletion."""


@dataclass(frozen=True)
class BackupFigures:
    """What a backup holds, as its snapshot's metadata has it."""

    records: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Backups:
    """What keeps the state of a table before a change of its rows."""

    settings: EditSettings
    catalog: Catalog
    commits: Commits

    def wanted(self, table: Table, create_backup: bool | None, hours: int | None, operation: str) -> Tag | None:
        """The tag for `swap` to put on the state before a change, if a backup is wanted; for how long.

        What the request leaves open, the table says. Where the change makes the table's first snapshot there is no
        state before it: `swap` makes no tag then, and `backup_of` names none.
        """
        policy = edit_policy(table.properties, self.settings)
        if not (policy.create_backup if create_backup is None else create_backup):
            if hours is not None:
                raise InvalidRequest(
                    "backup_retention_hours has no meaning where no backup is made; send create_backup: true, or leave "
                    "it out",
                    field="backup_retention_hours",
                )
            return None
        return Tag(named(operation, _now_ms()), (hours or policy.backup_retention_hours) * _HOUR_MS)

    def delete(self, table: Table, name: str, call: Call) -> None:
        """Delete a backup. An expiry deletes its files once nothing else needs them."""
        if all(backup.name != name for backup in backups_of(table)):
            if call.earlier is None:  # an earlier attempt with the same key found it
                raise _missing(table, name)
            self.commits.earlier_batch(call)
            return
        self.commits.alter(table, DELETE, call, lambda current, batch: self.catalog.remove_tag(current, name))


def backups_of(table: Table) -> list[Backup]:
    """A table's backups, newest first."""
    past = history(table)
    made_ms = {version.snapshot_id: version.timestamp_ms for version in past.versions}
    found = (_backup(ref, made_ms.get(ref.snapshot_id)) for ref in past.refs if ref.is_tag)
    return sorted(filter(None, found), key=lambda backup: (backup.made_at, backup.name), reverse=True)


def find(table: Table, name: str) -> Backup:
    """A table's backup of this name; BackupNotFound says which there are."""
    found = next((backup for backup in backups_of(table) if backup.name == name), None)
    if found is None:
        raise _missing(table, name)
    return found


def figures(table: Table, backup: Backup) -> BackupFigures:
    """What a backup holds; where a program left delete files, with the rows that they delete."""
    said = table.snapshot(backup.snapshot_id).summary
    if {"total-records", "total-data-files", "total-files-size"} <= said.keys():
        return BackupFigures(int(said["total-records"]), int(said["total-data-files"]), int(said["total-files-size"]))
    files = list_files(table, backup.snapshot_id)
    return BackupFigures(sum(file.rows for file in files.data), len(files.data), files.bytes)


def backup_of(snapshot: Snapshot | None) -> str | None:
    """The backup that the change behind a snapshot made of the state before, if it did."""
    if snapshot is None or snapshot.parent_id is None:
        return None
    return snapshot.summary.get(BACKUP_PROPERTY)


def named(operation: str, now_ms: int) -> str:
    """A name for a backup made now, for a change of this kind; no other has it."""
    return f"backup-{_moment(now_ms).strftime(_TIME)[:-3]}Z-{operation.lower()}-{secrets.token_hex(4)}"


def made_for(name: str) -> tuple[datetime, str] | None:
    """When a backup was made, and for which operation; None of a name that is no backup's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    try:
        moment = datetime.strptime(f"{found[1]}000", _TIME)
    except ValueError:  # a user's own name, with a 31st of February
        return None
    return moment.replace(tzinfo=UTC), found[2].upper()


def _backup(ref: Ref, made_ms: int | None) -> Backup | None:
    told = made_for(ref.name)
    if told is None or made_ms is None:
        return None
    return Backup(ref.name, ref.snapshot_id, *told, _end(made_ms, ref.max_age_ms))


def _end(made_ms: int, max_age_ms: int | None) -> datetime | None:
    if max_age_ms is None or made_ms + max_age_ms > _LAST_MS:
        return None
    return _moment(made_ms + max_age_ms)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def _missing(table: Table, name: str) -> BackupNotFound:
    known = [backup.name for backup in backups_of(table)]
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else _those(known)
    return BackupNotFound(
        f"table {table.name.table!r} has no backup {name[:80]!r}; {hint}", field="name", suggestion=near
    )


def _those(known: Iterable[str]) -> str:
    newest = list(known)[:_SHOWN]
    return f"its newest are {', '.join(newest)}" if newest else "it has none, or none any more"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
