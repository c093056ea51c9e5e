"""What each operation has to do with the rows of tables, which decides who may send it about a table with a policy.

`VISIBLE`: it shows rows or columns, only what the policy shows its sender. `NONE`: its response holds no values of
rows, and it changes none. `WHOLE`: it could show or change rows, or it says more than that about them, so whoever sees
only a part of the table may not send it. An operation that is not here counts as one of these; a test asks
for a decision.
"""

from collections.abc import Mapping
from enum import Enum


class RowAccess(Enum):
    VISIBLE = "visible"
    NONE = "none"
    WHOLE = "whole"


_VISIBLE = ("QUERY", "DIFF", "DESCRIBE_TABLE")
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
    # They add, change or remove rows, and show samples of them.
    *("WRITE", "UPSERT", "UPDATE", "DELETE", "DEDUPLICATE", "UNDO", "ROLLBACK", "RESTORE_BACKUP", "DELETE_BACKUP"),
    *("INGEST", "INGEST_RANGE", "WATCH", "REPLAY", "ACCEPT_DRIFT", "APPLY_TABLE"),
    *("CREATE_DYNAMIC_TABLE", "REFRESH_DYNAMIC_TABLE", "ALTER_DYNAMIC_TABLE", "DROP_DYNAMIC_TABLE"),
    # They change columns, names or files, by values of rows.
    *("CREATE_TABLE", "ALTER_TABLE", "REINITIALISE_TABLE", "RENAME_TABLE", "DROP_TABLE", "RESTORE_TABLE"),
    *("REPARTITION", "COMPACT", "SET_COMPACTION", "SET_ONLINE", "CLEAN_ORPHANS"),
    # They show values of rows: of partitions, of files, of samples.
    *("LIST_PARTITIONS", "TABLE_STATUS", "EXPORT", "AUDIT_DYNAMIC_TABLE", "DESCRIBE_DYNAMIC_TABLE"),
)
ROW_ACCESS: Mapping[str, RowAccess] = {
    **dict.fromkeys(_VISIBLE, RowAccess.VISIBLE),
    **dict.fromkeys(_NONE, RowAccess.NONE),
    **dict.fromkeys(_WHOLE, RowAccess.WHOLE),
}
