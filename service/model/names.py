"""Names of tables and namespaces, their encoding in the catalog, and the names of Firn's own properties."""

import re
from dataclasses import dataclass

from service.errors import InvalidRequest

_VALID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_PLAIN = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_NUMBER = re.compile(r"[0-9a-f]+")
_LENGTH_BITS = 6  # of a name of at most 63 characters
RESERVED_COLUMN_PREFIX = "_firn_"
# A row's data file and its position there, where a query reads them; together they tell all rows of a table apart.
PLACE_COLUMNS = (f"{RESERVED_COLUMN_PREFIX}place_file", f"{RESERVED_COLUMN_PREFIX}place_pos")
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
    """The name in catalogs and file systems, of lower-case letters, digits and `_`. Reversible.

    A plain name is its own encoding. Another one is folded: `Order-Items` becomes `order_items__61`.
    """
    return name if _PLAIN.fullmatch(name) else f"{_fold(name)}__{_folded(name):x}"


def decode(encoded: str) -> str | None:
    """The name that was encoded; None if Firn did not encode it."""
    text, _, folded = encoded.rpartition("__")
    name = _unfold(text, int(folded, 16)) if _NUMBER.fullmatch(folded) and text else encoded
    return name if _VALID.match(name) and encode(name) == encoded else None


def _fold(text: str) -> str:
    return text.lower().replace("-", "_")


def _folded(text: str) -> int:
    """Which characters folding changes: the bits of a number, the first character's is the lowest."""
    return sum(1 << i for i, (was, now) in enumerate(zip(text, _fold(text), strict=True)) if was != now)


def _unfold(text: str, folded: int) -> str:
    return "".join(c.upper().replace("_", "-") if folded >> i & 1 else c for i, c in enumerate(text))


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
    """The namespace in the catalog: `acme__shop`. If a part is not plain, both are folded, and a number at the end
    says how, and in its lowest bits how long the tenant's name is."""
    joined = f"{tenant}__{namespace}"
    if _PLAIN.fullmatch(tenant.removeprefix("_")) and _PLAIN.fullmatch(namespace):
        return joined
    return f"{_fold(joined)}__{_folded(joined) << _LENGTH_BITS | len(tenant):x}"


def dropped_table_name(table_uuid: str) -> TableName:
    """The catalog's name for a dropped table, until it is restored or removed; no request can name this tenant."""
    return TableName(*DROPPED_NAMESPACE, table_uuid.replace("-", "").lower())


def decode_namespace(identifier: str) -> tuple[str, str] | None:
    """The tenant and namespace of an identifier; None if Firn did not create it."""
    text, _, number = identifier.rpartition("__")
    tenant, _, namespace = identifier.partition("__")
    if text.count("__") and _NUMBER.fullmatch(number):
        joined = _unfold(text, int(number, 16) >> _LENGTH_BITS)
        length = int(number, 16) % (1 << _LENGTH_BITS)
        tenant, namespace = joined[:length], joined[length + 2 :]
    valid = _VALID.match(tenant) and _VALID.match(namespace)
    return (tenant, namespace) if valid and namespace_identifier(tenant, namespace) == identifier else None
