"""A table is taken offline by SET_ONLINE, or by the property `online` of CREATE_TABLE and ALTER_TABLE."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.app import App
from tests.harness import Firn
from tests.support.served import served

SCHEMA = {"fields": {"id": {"type": "long"}}}


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


def ask(firn: Firn, tenant: str, operation: str, **fields: Any) -> dict[str, Any]:
    address = {"tenant_id": tenant} if operation == "LIST_TABLES" else {"tenant_id": tenant, "table": "t"}
    return firn.ok({"operation": operation, **address, **fields})


def is_offline(firn: Firn, tenant: str) -> bool:
    described = ask(firn, tenant, "DESCRIBE_TABLE")["description"]
    offline = ask(firn, tenant, "LIST_TABLES")["offline"] == ["t"]
    assert (described["online"], described["properties"].get("online", True)) == (not offline, not offline)
    return offline


def test_a_table_may_be_created_offline_and_altered(firn: Firn, tenant: str) -> None:
    ask(firn, tenant, "CREATE_TABLE", schema=SCHEMA, properties={"online": False})
    assert is_offline(firn, tenant)
    ask(firn, tenant, "ALTER_TABLE", set_properties={"description": "x"})
    assert is_offline(firn, tenant)
    ask(firn, tenant, "ALTER_TABLE", set_properties={"online": True})
    assert not is_offline(firn, tenant)
    ask(firn, tenant, "ALTER_TABLE", set_properties={"online": False})
    assert is_offline(firn, tenant)
    ask(firn, tenant, "ALTER_TABLE", unset_properties=["online"])
    assert not is_offline(firn, tenant)
    ask(firn, tenant, "SET_ONLINE", online=False)
    assert is_offline(firn, tenant)
    ask(firn, tenant, "ALTER_TABLE", set_properties={"online": None})
    assert not is_offline(firn, tenant)


def test_a_table_is_created_online(firn: Firn, tenant: str) -> None:
    ask(firn, tenant, "CREATE_TABLE", schema=SCHEMA, properties={"online": True})
    assert not is_offline(firn, tenant)
