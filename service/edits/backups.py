"""Backups: tags on the state before a change, which say by their names when and for what they were made."""

import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from service.catalog.tables import Snapshot, Table
from service.commits.commit import Commits
from service.engine.swap import Tag
from service.errors import InvalidRequest
from service.names import BACKUP_PROPERTY
from service.properties import edit_policy
from service.settings import EditSettings

_HOUR_MS = 3_600_000
_NAME = re.compile(r"backup-(\d{8}T\d{9})Z-([a-z_]+)-[0-9a-f]{8}")
_TIME = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True)
class Backups:
    """What keeps the state of a table before a change of its rows."""

    settings: EditSettings
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


def backup_of(snapshot: Snapshot | None) -> str | None:
    """The backup that the change behind a snapshot made of the state before, if it did."""
    if snapshot is None or snapshot.parent_id is None:
        return None
    return snapshot.summary.get(BACKUP_PROPERTY)


def named(operation: str, now_ms: int) -> str:
    """A name for a backup made now, for a change of this kind; no other has it."""
    moment = datetime.fromtimestamp(now_ms // 1000, UTC).replace(microsecond=now_ms % 1000 * 1000)
    return f"backup-{moment.strftime(_TIME)[:-3]}Z-{operation.lower()}-{secrets.token_hex(4)}"


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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
