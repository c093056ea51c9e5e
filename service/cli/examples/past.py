"""Examples of `firn table history`, `diff` and `rollback`, and of `firn backup …`."""

from typing import Any

from service.cli.examples.setup import ORDERS, example, write

_DELETE: dict[str, Any] = {
    "operation": "DELETE",
    "namespace": "shop",
    "table": "orders",
    "filter": {"id": 1},
    "create_backup": True,
}
_TWO = (*ORDERS, write(4))
_BACKED_UP = (*ORDERS, _DELETE)
_BACKUP = "backup-20260301T100000000Z-delete-1f0c9a7e"
_NAMED = {_BACKUP: (1, "backup")}
_REQUEST = "84f0f3c9b1a04a6d8f6c5e1d2b7a9f30"
_FIRST, _SECOND = "4113542698571253187", "1255905574727858846"
_SNAPSHOTS = {_FIRST: (2, "metadata.snapshot_id"), _SECOND: (1, "metadata.snapshot_id")}

HISTORY = (
    example(
        "Show what was done to a table",
        "firn table history orders.yaml",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n…\n2 snapshots\n",
        _TWO,
    ),
    example(
        "Show what was done before the last change",
        "firn table history orders.yaml --offset 1",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n"
        "…  …Z  WRITE        +3     +1  …\n"
        "1 of 2 snapshots\n",
        _TWO,
    ),
)
DIFF = (
    example(
        "Show what changed between two snapshots",
        f"firn table diff orders.yaml {_FIRST} {_SECOND}",
        "   id  customer  amount  placed_at\n"
        "+   4  Bo        4.50    2026-03-04T10:00:00Z\n"
        "1 inserted, 0 deleted, 0 updated\n",
        _TWO,
        placeholders=_SNAPSHOTS,
    ),
)
ROLLBACK = (
    example(
        "Return a table to a snapshot",
        f"firn table rollback orders.yaml {_FIRST} --force",
        "rolled back: 4 rows before, 3 after\n",
        _TWO,
        placeholders=_SNAPSHOTS,
    ),
)
UNDO = (
    example(
        "Undo one change",
        f"firn table undo orders.yaml {_REQUEST} --force",
        "WRITE undone: 1 row removed, 0 restored\n",
        (*_TWO, write(5)),
        placeholders={_REQUEST: (2, "metadata.request_id")},
    ),
)
BACKUPS = (
    example(
        "List a table's backups",
        "firn backup list orders.yaml",
        "BACKUP                                      KEPT UNTIL         ROWS     SIZE  BEFORE\n"
        "backup-…  …Z     3  … KiB  DELETE\n"
        "1 backup\n",
        _BACKED_UP,
    ),
)
RESTORE = (
    example(
        "Restore a backup, and keep the current state",
        f"firn backup restore orders.yaml {_BACKUP} --keep",
        "restored: 2 rows before, 3 after\nthe state before is kept as backup-…\n",
        _BACKED_UP,
        placeholders=_NAMED,
    ),
)
DELETE = (
    example(
        "Delete a backup",
        f"firn backup delete orders.yaml {_BACKUP} --force",
        "deleted\n",
        _BACKED_UP,
        placeholders=_NAMED,
    ),
)
