"""Names of tables and namespaces, their encoding in the catalog, and the names of Firn's own properties."""

import re
from dataclasses import dataclass

from service.errors import InvalidRequest

_VALID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_ESCAPE = re.compile(r"_([0-9a-f]{2})")
RESERVED_COLUMN_PREFIX = "_firn_"
# The internal columns of ingestion tables. Unlike others, rows keep their values, and requests can name them.
INGEST_COLUMNS = ("_firn_period", "_firn_date", "_firn_file")
CATALOG = "firn"  # the catalog's name in PyIceberg and in Spark; SQL catalogs store it with every table
DROPPED_NAMESPACE = ("_firn", "dropped")  # the tenant and namespace of dropped tables; no request can name this tenant
CHANGES_PROPERTY = "firn.changes"  # a table property: the batches that last changed the table's metadata
# Snapshot properties
BATCH_PROPERTY = "firn-batch"  # the batch that made the snapshot
EDIT_PROPERTY = "firn-edit"  # the result of an edit, as JSON, from which its response can be rendered
KEYS_PROPERTY = "firn-keys"  # the key columns of an UPSERT, as JSON
RESTORED_PROPERTY = "firn-records-before"  # the number of rows before the table was restored from a backup
BACKUP_PROPERTY = "firn-backup"  # the tag that a change put on the state before it
FENCE_PROPERTY = "firn-fence"  # of an empty snapshot: the batch that another instance has taken over


def check_name(value: str, field: str) -> str:
    """Return the value, or raise InvalidRequest if it is not a valid name."""
    if not _VALID.match(value):
        problem = f"{value[:80]!r} is not a name; use 1 to 63 letters, digits, '_' and '-', with no '_' or '-' first"
        raise InvalidRequest.at(field, problem)
    return value


def encode(name: str) -> str:
    """Encode a name for catalogs and file systems: every byte outside [a-z0-9] becomes `_hh`. Reversible."""
    return "".join(chr(b) if chr(b) in "abcdefghijklmnopqrstuvwxyz0123456789" else f"_{b:02x}" for b in name.encode())


def decode(encoded: str) -> str | None:
    """The name that was encoded; None if Firn did not encode it."""
    try:
        name = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), encoded)
    except ValueError:
        return None
    return name if _VALID.match(name) and encode(name) == encoded else None


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's address in requests."""

    tenant: str
    namespace: str
    table: str

    @property
    def identifier(self) -> tuple[str, str]:
        """The address in the Iceberg catalog: a namespace of one level, and a table."""
        return namespace_identifier(self.tenant, self.namespace), encode(self.table)

    def __str__(self) -> str:
        return f"{self.tenant}.{self.namespace}.{self.table}"


def namespace_identifier(tenant: str, namespace: str) -> str:
    # An encoded name never contains two underscores in a row, so this is unambiguous.
    return f"{encode(tenant)}__{encode(namespace)}"


def dropped_table_name(table_uuid: str) -> TableName:
    """The catalog's name for a dropped table, until it is restored or removed; no request can name this tenant."""
    return TableName(*DROPPED_NAMESPACE, table_uuid.replace("-", "").lower())


def decode_namespace(identifier: str) -> tuple[str, str] | None:
    """The tenant and namespace of an identifier; None if Firn did not create it."""
    tenant, separator, namespace = identifier.partition("__")
    parts = decode(tenant), decode(namespace)
    return (parts[0], parts[1]) if separator and parts[0] and parts[1] else None
