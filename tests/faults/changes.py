"""Changes of every kind, each under a key."""

from dataclasses import dataclass, field, replace
from typing import Any

from service.model import wire
from service.model.names import TableName
from tests.faults.evidence import Disk
from tests.harness import Firn

NAME = TableName("kills", "default", "kept")
PLACE = {"tenant_id": NAME.tenant, "namespace": NAME.namespace}
ADDRESS = {**PLACE, "table": NAME.table}
FIELDS = {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}
SCHEMA = {"fields": FIELDS, "primary_key": ["id"]}

_KEYED = {**PLACE, "table": "keyed"}
CHANGES: list[dict[str, Any]] = [
    {"operation": "CREATE_TABLE", **_KEYED, "schema": SCHEMA},
    {"operation": "WRITE", **_KEYED, "records": [{"id": 1, "payload": "a"}, {"id": 2, "payload": "b"}]},
    {"operation": "WRITE", **_KEYED, "records": [{"id": 8, "payload": "z"}], "mode": "overwrite"},
    {"operation": "UPSERT", **_KEYED, "records": [{"id": 8, "payload": "y"}, {"id": 3, "payload": "c"}]},
    {"operation": "UPDATE", **_KEYED, "updates": {"payload": "d"}, "filter": {"id": 3}},
    {"operation": "DELETE", **_KEYED, "filter": {"id": 8}},
    {"operation": "WRITE", **_KEYED, "records": [{"id": 4}]},
    {"operation": "COMPACT", **_KEYED, "force": True},
    {"operation": "CREATE_TABLE", **PLACE, "table": "dropped", "schema": SCHEMA},
    {"operation": "DROP_TABLE", **PLACE, "table": "dropped", "purge": True, "confirm": True},
]
LEFT_BY_CHANGES = [{"id": 3, "payload": "d"}, {"id": 4, "payload": None}]


def answers_to(changes: list[dict[str, Any]], firn: Firn) -> list[bytes]:
    """What the changes are answered, each sent under a key of its own; all of them succeed."""
    answers = [firn.send({**change, "idempotency_key": f"change-{n}"}).content for n, change in enumerate(changes)]
    refused = [body for body in map(wire.parse, answers) if not body["success"]]
    assert not refused, refused
    return answers


@dataclass(frozen=True)
class Change:
    """A change of a table that two WRITEs have filled, or of none; and what must be answered."""

    request: dict[str, Any]
    answer: dict[str, Any]
    snapshots: int = 3
    """How many the table must have afterwards."""
    properties: dict[str, Any] = field(default_factory=dict)
    """Of the table."""

    @property
    def table(self) -> str:
        return str(self.request["table"])

    def happened(self, disk: Disk, batch: str) -> bool:
        """Whether a batch that was noted for this change has had its effect."""
        match self.request["operation"]:
            case "CREATE_TABLE":
                return disk.exists()
            case "DROP_TABLE":
                return not disk.exists()
        return batch in disk.committed()


def _change(operation: str, fields: dict[str, Any], answer: dict[str, Any], snapshots: int = 3) -> Change:
    address = {**PLACE, "table": f"to-{operation.lower()}"}
    request = {"operation": operation, **address, "idempotency_key": "once", **fields}
    return Change(request, {"success": True, **answer}, snapshots)


def _by_place(operation: str, fields: dict[str, Any], answer: dict[str, Any]) -> Change:
    """A change that adds delete files."""
    made = _change(operation, fields, answer)
    request = {**made.request, "table": f"{made.table}-by-place"}
    return replace(made, request=request, properties={"row_level": "merge_on_read"})


EVERY_KIND = [
    _change(
        "UPSERT",
        {"records": [{"id": 1, "payload": "x"}, {"id": 9, "payload": "n"}]},
        {"records_inserted": 1, "records_updated": 1},
    ),
    _change("UPDATE", {"updates": {"payload": "u"}, "filter": {"id": {"lte": 2}}}, {"records_updated": 2}),
    _change("DELETE", {"filter": {"id": {"lte": 2}}}, {"records_deleted": 2}),
    _by_place("DELETE", {"filter": {"id": 1}}, {"records_deleted": 1}),
    _by_place("UPDATE", {"updates": {"payload": "u"}, "filter": {"id": 2}}, {"records_updated": 1}),
    _change("WRITE", {"records": [{"id": 7}], "mode": "overwrite"}, {"records_written": 1}),
    _change("COMPACT", {"force": True}, {"compacted": True, "reason": None}),
    _change("CREATE_TABLE", {"schema": SCHEMA}, {"table_created": True, "table_existed": False}, snapshots=0),
    _change("DROP_TABLE", {}, {"table_dropped": True, "table_existed": True}, snapshots=0),
]
TABLES_TO_CHANGE = [
    {**PLACE, "table": change.table, **request}
    for change in EVERY_KIND
    if change.request["operation"] != "CREATE_TABLE"
    for request in (
        {"operation": "CREATE_TABLE", "schema": SCHEMA, "properties": change.properties},
        {"operation": "WRITE", "records": [{"id": 1, "payload": "a"}, {"id": 2, "payload": "b"}]},
        {"operation": "WRITE", "records": [{"id": 3, "payload": "c"}]},
    )
]
"""The requests that make the tables the changes are tried on."""
