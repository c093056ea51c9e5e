"""REPARTITION with `delete_source: true` deletes the old files once the new layout is committed, and only then."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.repartition import Repartition, _released
from service.errors import CatalogUnavailable
from service.model.call import Call
from service.model.names import TableName

NAME = TableName("acme", "shop", "ticks")


class Life:
    """Drops a table whose current snapshot is 5."""

    def __init__(self) -> None:
        self.dropped: list[Any] = []

    def drop(self, name: TableName, call: Call, *, purge: bool, check: Any) -> None:
        check(SimpleNamespace(current_snapshot_id=5))
        self.dropped.append((name, purge, call.key))


def release(
    source_snapshot_id: int | None = 5, life: Life | None = None, expire: Any = None, *, done: bool = True, **more: Any
) -> dict[str, Any]:
    fields = {"operation": "REPARTITION", "tenant_id": "acme", "table": "ticks", "delete_source": True, **more}
    outcome = SimpleNamespace(repartitioned=done, source_snapshot_id=source_snapshot_id)
    expirer = SimpleNamespace(by_age=expire or (lambda table, hours, gate: SimpleNamespace(files=3 + hours)))
    table = SimpleNamespace(name=NAME)
    return _released(
        Repartition.model_validate(fields), *cast(Any, (table, outcome, Call("r"), expirer, life or Life()))
    )


def test_in_place_all_older_snapshots_expire() -> None:
    assert release() == {"expired_files_deleted": 3}


def test_a_table_that_was_copied_is_deleted_if_nothing_changed_since() -> None:
    life = Life()
    assert release(5, life, target_table="new") == {"source_deleted": True}
    assert life.dropped == [(NAME, True, None)]


@pytest.mark.parametrize("copied", [4, None])
def test_a_table_that_was_changed_since_stays(copied: int | None) -> None:
    life = Life()
    answer = release(copied, life, target_table="new")
    assert (answer["source_deleted"], life.dropped) == (False, [])
    assert "table 'ticks' was changed in the meantime" in answer["warnings"][0]


def test_a_failure_is_only_a_warning_because_the_new_layout_is_committed() -> None:
    def fail(*_: Any) -> Any:
        raise CatalogUnavailable("away")

    answer = release(expire=fail)
    assert answer == {"warnings": ["the old files were not deleted: CATALOG_UNAVAILABLE: away"]}


def test_nothing_is_deleted_if_nothing_was_repartitioned() -> None:
    life = Life()
    assert release(5, life, done=False, target_table="new") == {}
    assert life.dropped == []
