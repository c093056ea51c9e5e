"""The groups of operations, by task: their order is that of the documentation."""

from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Tables": (
        "CREATE_TABLE",
        "LIST_TABLES",
        "DESCRIBE_TABLE",
        "ALTER_TABLE",
        "REINITIALISE_TABLE",
        "RENAME_TABLE",
        "DROP_TABLE",
        "RESTORE_TABLE",
        "SET_ONLINE",
    ),
    "Namespaces": ("CREATE_NAMESPACE", "LIST_NAMESPACES", "DROP_NAMESPACE"),
    "Rows": ("WRITE", "QUERY", "UPSERT", "UPDATE", "DELETE", "DEDUPLICATE"),
    "Ingestion": (
        "INGEST",
        "INGEST_RANGE",
        "WATCH",
        "REPLAY",
        "ACCEPT_DRIFT",
        "EXPORT",
        "TABLE_STATUS",
        "APPLY_TABLE",
    ),
    "History and recovery": (
        "HISTORY",
        "DIFF",
        "UNDO",
        "ROLLBACK",
        "LIST_BACKUPS",
        "RESTORE_BACKUP",
        "DELETE_BACKUP",
    ),
    "Maintenance": (
        "RECOMMEND",
        "COMPACT",
        "SET_COMPACTION",
        "COMPACTION_LOG",
        "LIST_PARTITIONS",
        "REPARTITION",
        "CLEAN_ORPHANS",
    ),
    "Schedules and jobs": (
        "CREATE_SCHEDULE",
        "LIST_SCHEDULES",
        "RUN_SCHEDULE",
        "DELETE_SCHEDULE",
        "LIST_JOBS",
    ),
    "Identities": ("CREATE_KEY", "LIST_KEYS", "ROTATE_KEY", "REVOKE_KEY", "AUDIT_LOG"),
}
