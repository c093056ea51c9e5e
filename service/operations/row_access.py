"""What each operation has to do with the rows of tables, which decides who may send it about a table with a policy.

`VISIBLE`: it shows only the rows and columns that the policy shows its sender. `NONE`: its response holds no values of
rows, and it changes none. `WHOLE`: it could show or change rows, or it says more than that about them, so whoever sees
only a part of the table may not send it. `PREVIEW`: the same, but its dry run shows only visible rows and values. An
operation that is not here counts as `WHOLE`; a test asks for a decision.
"""

from collections.abc import Mapping
from enum import Enum


class RowAccess(Enum):
    VISIBLE = "visible"
    NONE = "none"
    PREVIEW = "preview"
    WHOLE = "whole"


_VISIBLE = ("QUERY", "DIFF", "DESCRIBE_TABLE", "EXPORT")
_PREVIEW = ("WRITE", "UPSERT", "UPDATE", "DELETE", "DEDUPLICATE")
_NONE = (
    # Lists of names, sizes, counts and times.
    *("LIST_TABLES", "LIST_NAMESPACES", "LIST_BACKUPS", "LIST_JOBS", "LIST_SCHEDULES", "LIST_DYNAMIC_TABLES"),
    *("HISTORY", "REFRESH_HISTORY", "COMPACTION_LOG", "RECOMMEND"),
    # About no table's rows. What a schedule sends is checked when it is sent.
    *("CREATE_NAMESPACE", "DROP_NAMESPACE", "CREATE_SCHEDULE", "DELETE_SCHEDULE", "RUN_SCHEDULE"),
    *("CREATE_KEY", "LIST_KEYS", "ROTATE_KEY", "REVOKE_KEY", "AUDIT_LOG"),
    # It checks the tables of its query itself.
    "EXPLAIN_DYNAMIC_TABLE",
    # Only for administrators, whom no policy binds.
    "SET_POLICY",
)
_WHOLE = (
    # They add, change or remove rows, whichever they are.
    *("UNDO", "ROLLBACK", "RESTORE_BACKUP", "DELETE_BACKUP"),
    *("INGEST", "INGEST_RANGE", "WATCH", "REPLAY", "ACCEPT_DRIFT", "APPLY_TABLE"),
    *("CREATE_DYNAMIC_TABLE", "REFRESH_DYNAMIC_TABLE", "ALTER_DYNAMIC_TABLE", "DROP_DYNAMIC_TABLE"),
    # They change columns, names or files, by values of rows.
    *("CREATE_TABLE", "ALTER_TABLE", "REINITIALISE_TABLE", "RENAME_TABLE", "DROP_TABLE", "RESTORE_TABLE"),
    *("REPARTITION", "COMPACT", "SET_COMPACTION", "SET_ONLINE", "CLEAN_ORPHANS"),
    # They show values of rows: of partitions, of files, of samples.
    *("LIST_PARTITIONS", "TABLE_STATUS", "AUDIT_DYNAMIC_TABLE", "DESCRIBE_DYNAMIC_TABLE"),
)
ROW_ACCESS: Mapping[str, RowAccess] = {
    **dict.fromkeys(_VISIBLE, RowAccess.VISIBLE),
    **dict.fromkeys(_NONE, RowAccess.NONE),
    **dict.fromkeys(_PREVIEW, RowAccess.PREVIEW),
    **dict.fromkeys(_WHOLE, RowAccess.WHOLE),
}


def row_access(operation: str, *, dry_run: bool) -> RowAccess:
    """What a request has to do with rows: `VISIBLE`, `NONE` or `WHOLE`."""
    access = ROW_ACCESS.get(operation, RowAccess.WHOLE)
    if access is RowAccess.PREVIEW:
        return RowAccess.VISIBLE if dry_run else RowAccess.WHOLE
    return access
