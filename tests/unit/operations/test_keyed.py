"""Operations on schedules and namespaces accept an idempotency key, like every other change."""

from collections.abc import Iterator
from typing import Any

import pytest

from handlers import discover
from service.app import App
from service.errors import InternalError
from service.operations.operation import KeyedRequest
from service.pipeline.idempotency import IdempotencyKeys
from tests.harness import Firn
from tests.support.served import served

READS = {
    *("QUERY", "DIFF", "HISTORY", "DESCRIBE_TABLE", "TABLE_STATUS", "RECOMMEND", "COMPACTION_LOG"),
    *("LIST_DYNAMIC_TABLES", "DESCRIBE_DYNAMIC_TABLE", "EXPLAIN_DYNAMIC_TABLE", "REFRESH_HISTORY", "AUDIT_LOG"),
    *(f"LIST_{things}" for things in ("TABLES", "NAMESPACES", "SCHEDULES", "JOBS", "BACKUPS", "PARTITIONS", "KEYS")),
}
# A stored response would hold the secret of a key.
WITHOUT_KEY = {"CREATE_KEY", "ROTATE_KEY", "REVOKE_KEY"}
SCHEDULE = {"name": "nightly", "cron": "0 2 29 2 *", "task": {"operation": "COMPACT"}}
CHANGES: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    ({"operation": "CREATE_NAMESPACE", "namespace": "lab"}, None, "namespace_created"),
    (
        {"operation": "DROP_NAMESPACE", "namespace": "lab"},
        {"operation": "CREATE_NAMESPACE", "namespace": "lab"},
        "namespace_dropped",
    ),
    ({"operation": "CREATE_SCHEDULE", **SCHEDULE}, None, "schedule_created"),
    (
        {"operation": "DELETE_SCHEDULE", "name": "nightly"},
        {"operation": "CREATE_SCHEDULE", **SCHEDULE},
        "schedule_deleted",
    ),
    ({"operation": "RUN_SCHEDULE", "name": "nightly"}, {"operation": "CREATE_SCHEDULE", **SCHEDULE}, "started"),
    (
        {"operation": "RUN_SCHEDULE", "name": "nightly", "wait": True},
        {"operation": "CREATE_SCHEDULE", **SCHEDULE},
        "started",
    ),
]


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


def test_every_operation_that_changes_something_accepts_a_key() -> None:
    assert {o.name for o in discover() if not issubclass(o.request, KeyedRequest)} == READS | WITHOUT_KEY
    assert {o.name for o in discover() if not o.changes} == READS


@pytest.mark.parametrize(("change", "given", "done"), CHANGES)
def test_a_repeated_request_has_one_effect_and_one_response(
    firn: Firn, tenant: str, change: dict[str, Any], given: dict[str, Any] | None, done: str
) -> None:
    if given:
        firn.ok({**given, "tenant_id": tenant})
    request = {**change, "tenant_id": tenant, "idempotency_key": "k"}
    first = firn.ok(request)
    assert first[done] is True
    assert firn.ok(request) == first
    firn.fail({**request, "timeout_ms": 9999}, "KEY_REUSED", 422)


@pytest.mark.parametrize(("change", "given", "done"), CHANGES)
def test_a_change_whose_response_was_lost_is_known_when_it_is_sent_again(
    firn: Firn,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    given: dict[str, Any] | None,
    done: str,
) -> None:
    def lost(*args: Any) -> bytes:
        raise InternalError("the response was lost")

    if given:
        firn.ok({**given, "tenant_id": tenant})
    request = {**change, "tenant_id": tenant, "idempotency_key": "k"}
    with monkeypatch.context() as patched:
        patched.setattr(IdempotencyKeys, "store", lost)
        patched.setattr("service.commits.commit.store_response", lost)
        firn.fail(request, "INTERNAL_ERROR", 500)
    again = firn.ok(request)
    assert again[done] is True
    assert firn.ok(request) == again
    if done == "started":
        [schedule] = firn.ok({"operation": "LIST_SCHEDULES", "tenant_id": tenant, "runs": 9})["schedules"]
        assert len(schedule["runs"]) == 1


def test_a_refused_request_leaves_its_key_free(firn: Firn, tenant: str) -> None:
    create = {"operation": "CREATE_NAMESPACE", "tenant_id": tenant, "namespace": "lab"}
    firn.ok(create)
    firn.fail({**create, "idempotency_key": "k"}, "NAMESPACE_EXISTS", 409)
    firn.fail({**create, "idempotency_key": "k"}, "NAMESPACE_EXISTS", 409)
    known = firn.ok({**create, "idempotency_key": "k", "if_not_exists": True})
    assert (known["namespace_created"], known["namespace_existed"]) == (False, True)
    drop = {"operation": "DROP_NAMESPACE", "tenant_id": tenant, "namespace": "never", "idempotency_key": "k"}
    firn.fail(drop, "NAMESPACE_NOT_FOUND", 404)
    firn.fail(drop, "NAMESPACE_NOT_FOUND", 404)
