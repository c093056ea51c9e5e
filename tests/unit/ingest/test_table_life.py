"""What follows an ingestion table when it is renamed, dropped and restored: through requests, without Spark."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.app import App
from service.catalog.tables import Catalog, Table
from service.errors import InvalidRequest
from service.ingest.history import IngestHistory
from service.ingest.quarantine import Quarantines
from service.model.names import TableName
from tests.harness import Firn
from tests.support.served import served

COLUMNS = [{"name": "id", "type": "INTEGER"}]
CONFIG: dict[str, Any] = {
    "ingestion": {"watch": {"folder": "incoming", "pattern": "{date}.csv"}},
    "compaction": {"trigger": {"type": "schedule", "schedule": "0 3 * * 1"}},
}


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


class Tenant:
    """A tenant's ingestion tables."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn, self.tenant = firn, tenant
        self.create("sales")

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, "tenant_id": self.tenant, **fields})

    def create(self, name: str) -> None:
        self.ok("CREATE_TABLE", config={"name": name, **CONFIG}, dataset={"columns": COLUMNS})

    def table(self, name: str) -> Table:
        return self.firn.app.parts[Catalog].load(TableName(self.tenant, "default", name))

    def reject(self, name: str) -> Table:
        """The quarantine of a table, which its first rejected row creates."""
        return self.firn.app.parts[Quarantines].ensure(self.table(name))

    @property
    def registered(self) -> list[str]:
        records = self.firn.app.parts[IngestHistory].records
        return [one.name.table for one in records.tables() if one.name.tenant == self.tenant]

    @property
    def scheduled(self) -> list[str]:
        return [one["table"] for one in self.ok("LIST_SCHEDULES")["schedules"]]


@pytest.fixture
def acme(firn: Firn, tenant: str) -> Tenant:
    return Tenant(firn, tenant)


def test_a_rename_says_that_the_quarantine_went_with_the_table(acme: Tenant) -> None:
    quarantine = acme.reject("sales").uuid
    renamed = acme.ok("RENAME_TABLE", table="sales", new_name="takings")
    assert renamed["quarantine_table"] == "takings__quarantine"
    assert acme.reject("takings").uuid == quarantine
    assert (acme.registered, acme.scheduled) == (["takings"], ["takings"])


def test_the_table_file_of_a_renamed_table_has_its_new_name(acme: Tenant) -> None:
    acme.ok("RENAME_TABLE", table="sales", new_name="takings")
    config = {"name": "takings", **CONFIG}
    acme.ok("WATCH", config=config)
    planned = acme.ok("APPLY_TABLE", config={**config, "description": "new"}, dry_run=True)["plan"]
    assert [one["path"] for one in planned["changes"]] == ["description"]
    assert acme.ok("APPLY_TABLE", config={**config, "description": "new"})["applied"]


def test_a_drop_and_a_restore_take_everything_along(acme: Tenant) -> None:
    quarantine = acme.reject("sales").uuid
    dropped = acme.ok("DROP_TABLE", table="sales")
    assert dropped["quarantine_table"] == "sales__quarantine"
    assert acme.ok("LIST_TABLES")["tables"] == []
    assert (acme.registered, acme.scheduled) == ([], [])
    acme.create("sales")
    assert acme.reject("sales").uuid != quarantine
    restored = acme.ok("RESTORE_TABLE", table="sales", new_name="before")
    assert (restored["table"], restored["quarantine_table"]) == ("before", "before__quarantine")
    assert acme.reject("before").uuid == quarantine
    assert (acme.registered, sorted(acme.scheduled)) == (["before", "sales"], ["before", "sales"])


def test_a_namespace_can_be_dropped_once_its_ingestion_tables_are(acme: Tenant) -> None:
    acme.ok("CREATE_TABLE", namespace="lab", config={"name": "trial"}, dataset={"columns": COLUMNS})
    lab = TableName(acme.tenant, "lab", "trial")
    acme.firn.app.parts[Quarantines].ensure(acme.firn.app.parts[Catalog].load(lab))
    acme.ok("DROP_TABLE", namespace="lab", table="trial")
    assert acme.ok("DROP_NAMESPACE", namespace="lab")["namespace_dropped"]
    acme.ok("RESTORE_TABLE", namespace="lab", table="trial")
    assert acme.ok("LIST_TABLES", namespace="lab")["tables"] == ["trial", "trial__quarantine"]


def test_rejected_rows_do_not_go_to_a_table_that_happens_to_have_the_name_of_the_quarantine(acme: Tenant) -> None:
    schema = {"fields": {"id": {"type": "long"}}}
    acme.ok("CREATE_TABLE", table="sales__quarantine", schema=schema)
    with pytest.raises(InvalidRequest, match="rename or drop it first"):
        acme.reject("sales")
    assert acme.firn.app.parts[Quarantines].find(acme.table("sales")) is None


def test_a_name_that_leaves_no_room_for_the_quarantine_is_refused(acme: Tenant) -> None:
    request = {"operation": "RENAME_TABLE", "tenant_id": acme.tenant, "table": "sales", "new_name": "s" * 52}
    assert acme.firn.fail(request, "INVALID_REQUEST")["field"] == "new_name"
