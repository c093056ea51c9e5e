"""LIST_TABLES of an empty default namespace says where the tables are."""

from collections.abc import Iterator

import pytest

from service.app import App
from tests.harness import Firn
from tests.support.served import served


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


def test_an_empty_default_namespace_names_the_namespaces_that_have_tables(firn: Firn, tenant: str) -> None:
    ask = {"operation": "LIST_TABLES", "tenant_id": tenant}
    assert "namespaces_with_tables" not in firn.ok(ask)
    firn.ok({"operation": "CREATE_NAMESPACE", "tenant_id": tenant, "namespace": "empty"})
    assert "namespaces_with_tables" not in firn.ok(ask)
    create = {
        "operation": "CREATE_TABLE",
        "tenant_id": tenant,
        "table": "t",
        "schema": {"fields": {"id": {"type": "long"}}},
    }
    for namespace in ("shop", "lab"):
        firn.ok({**create, "namespace": namespace})
    for request in (ask, {**ask, "namespace": "default"}, {**ask, "table": "t"}):
        listed = firn.ok(request)
        assert (listed["tables"], listed["namespaces_with_tables"]) == ([], ["lab", "shop"])
    assert "namespaces_with_tables" not in firn.ok({**ask, "namespace": "empty"})
    firn.ok(create)
    assert "namespaces_with_tables" not in firn.ok(ask)
