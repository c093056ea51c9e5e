"""Addresses of data, and their one reversible spelling on disk."""

import re
from dataclasses import dataclass

from service.errors import InvalidRequest

PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z"
_VALID = re.compile(PATTERN)
_ESCAPE = re.compile(r"_([0-9a-f]{2})")
RESERVED_COLUMN_PREFIX = "_firn_"
# What PyIceberg and Spark both call the catalog: SQL catalogs keep the name beside every table.
CATALOG = "firn"
# The table property that names the batches which changed its metadata last.
CHANGES_PROPERTY = "firn.changes"
# The tenant and the namespace of dropped tables: names that are no names to a request.
DROPPED_PLACE = ("_firn", "dropped")
# The snapshot property that says which batch made a snapshot.
BATCH_PROPERTY = "firn-batch"
# The snapshot property that says what an edit came to, as JSON: the answer can be made from it.
EDIT_PROPERTY = "firn-edit"
# The snapshot property that says by which columns an UPSERT met rows, as JSON.
KEYS_PROPERTY = "firn-keys"
# The snapshot property that says how many rows the table had before it was restored from a backup.
RESTORED_PROPERTY = "firn-records-before"
# The snapshot property that names the tag that a change put on the state before it.
BACKUP_PROPERTY = "firn-backup"
# The snapshot property that says for which batch, taken over by another instance, a snapshot without effect was made.
FENCE_PROPERTY = "firn-fence"


def check_name(value: str, field: str) -> str:
    """The value itself, or a refusal that says what a name may be."""
    if not _VALID.match(value):
        raise InvalidRequest(
            f"{field} {value[:80]!r} is not a name: use 1 to 63 letters, digits, '_' and '-', "
            "beginning with a letter or a digit",
            field=field,
        )
    return value


def encode(name: str) -> str:
    """Every byte outside [a-z0-9] becomes `_hh`: injective, and safe in every catalog and file system."""
    return "".join(chr(b) if chr(b) in "abcdefghijklmnopqrstuvwxyz0123456789" else f"_{b:02x}" for b in name.encode())


def decode(encoded: str) -> str | None:
    """The name an encoded one stands for; None where Firn did not write it."""
    try:
        name = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), encoded)
    except ValueError:
        return None
    return name if _VALID.match(name) and encode(name) == encoded else None


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's address as a request gives it."""

    tenant: str
    namespace: str
    table: str

    @property
    def identifier(self) -> tuple[str, str]:
        """The address in the Iceberg catalog: one single-level namespace, one table."""
        return namespace_identifier(self.tenant, self.namespace), encode(self.table)

    def __str__(self) -> str:
        return f"{self.tenant}.{self.namespace}.{self.table}"


def namespace_identifier(tenant: str, namespace: str) -> str:
    # An encoded part never holds two underscores in a row, so the joint is unambiguous.
    return f"{encode(tenant)}__{encode(namespace)}"


def place_of_dropped(table_uuid: str) -> TableName:
    """Where the catalog keeps a dropped table until it is restored or removed; no request can name this tenant."""
    return TableName(*DROPPED_PLACE, table_uuid.replace("-", "").lower())


def decode_namespace(identifier: str) -> tuple[str, str] | None:
    """The tenant and the namespace that an identifier stands for; None where Firn did not write it."""
    tenant, joint, namespace = identifier.partition("__")
    parts = decode(tenant), decode(namespace)
    return (parts[0], parts[1]) if joint and parts[0] and parts[1] else None
