"""A commit that keeps the state it changes: the tag and the change are there together, or neither."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.catalog.history import Ref, history
from service.catalog.tables import Table
from service.engine.iceberg.replace import append_files
from service.engine.iceberg.swap import CommitTarget, Tag, swap
from service.engine.jobs.append import stage
from service.engine.session.java import each, java_class
from service.engine.session.rows import frame
from service.model.names import BACKUP_PROPERTY
from service.model.times import HOUR_MS
from tests.harness import Firn
from tests.integration.test_append import Once, Swapping, append, ids_in, made, now, rows


def append_keeping(firn: Firn, table: Table, tag: Tag, *ids: int, gate: Callable[[], object] = lambda: None) -> int:
    """Add rows in a commit that tags the state before it."""
    data = rows(table, *ids)

    def job(session: SparkSession) -> int:
        target = CommitTarget(session, table.spark_name, table.uuid, None)
        iceberg = target.load()
        staged = stage(session, table.spark_name, frame(session, data))
        return swap(target, iceberg, append_files(iceberg, staged.files, "b"), lambda _: gate(), tag=tag)

    return firn.app.engine.run(job)


class Asking(Swapping):
    """A table that notes what a REST catalog would be asked for."""

    def __init__(self, iceberg: Any) -> None:
        super().__init__(iceberg, lambda commit: commit())
        self.changes: list[dict[str, Any]] = []
        self.requirements: list[dict[str, Any]] = []

    def commit(self, base: Any, updated: Any) -> None:
        update, required = (
            java_class(f"org.apache.iceberg.{name}Parser") for name in ("MetadataUpdate", "UpdateRequirement")
        )
        changes = updated.changes()
        self.changes = [json.loads(update.toJson(change)) for change in each(changes)]
        needed = java_class("org.apache.iceberg.UpdateRequirements").forUpdateTable(base, changes)
        self.requirements = [json.loads(required.toJson(one)) for one in each(needed)]
        super().commit(base, updated)


def tags(firn: Firn, tenant: str) -> dict[str, Ref]:
    return {ref.name: ref for ref in history(now(firn, tenant)).refs if ref.is_tag}


@pytest.mark.parametrize("keep_ms", [1, HOUR_MS, 1_000_000 * HOUR_MS])
def test_a_tag_is_put_on_the_state_that_a_commit_changes_and_lives_from_then_on(
    firn: Firn, tenant: str, keep_ms: int
) -> None:
    table = made(firn, tenant)
    first = append(firn, table, 1)
    written_ms = now(firn, tenant).snapshot(first).timestamp_ms
    time.sleep(0.5)
    before_ms = time.time_ns() // 1_000_000
    second = append_keeping(firn, table, Tag("kept", keep_ms), 2)
    after_ms = time.time_ns() // 1_000_000
    assert now(firn, tenant).current_snapshot_id == second
    assert now(firn, tenant).snapshot(second).summary[BACKUP_PROPERTY] == "kept"
    [tag] = tags(firn, tenant).values()
    assert (tag.name, tag.snapshot_id) == ("kept", first)
    assert tag.max_age_ms is not None
    assert before_ms + keep_ms <= written_ms + tag.max_age_ms <= after_ms + keep_ms
    assert ids_in(firn, tenant) == [1, 2]


def test_a_rest_catalog_is_asked_for_the_tag_and_the_commit_together(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    first = append(firn, table, 1)
    data = rows(table, 2)

    def job(session: SparkSession) -> Asking:
        target = CommitTarget(session, table.spark_name, table.uuid, None)
        asking = Asking(target.load())
        staged = stage(session, table.spark_name, frame(session, data))
        swap(target, asking, append_files(asking, staged.files, "b"), lambda _: None, tag=Tag("kept", HOUR_MS))
        return asking

    asking = firn.app.engine.run(job)
    refs = [change for change in asking.changes if change["action"] == "set-snapshot-ref"]
    assert {ref["ref-name"]: (ref["type"], ref["snapshot-id"]) for ref in refs} == {
        "main": ("branch", now(firn, tenant).current_snapshot_id),
        "kept": ("tag", first),
    }
    needed = {one["ref"]: one["snapshot-id"] for one in asking.requirements if one["type"] == "assert-ref-snapshot-id"}
    assert needed == {"main": first, "kept": None}, "no other tag has the name"


def test_a_commit_that_is_beaten_tags_what_beat_it(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    quicker: list[int] = []
    look = Once(lambda: quicker.append(append(firn, table, 2)))
    append_keeping(firn, table, Tag("kept", HOUR_MS), 3, gate=look)
    assert look.calls == 2
    assert [tag.snapshot_id for tag in tags(firn, tenant).values()] == quicker
    assert ids_in(firn, tenant) == [1, 2, 3]


def test_a_commit_that_is_refused_leaves_no_tag(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    with pytest.raises(ZeroDivisionError):
        append_keeping(firn, table, Tag("kept", HOUR_MS), 2, gate=lambda: 1 / 0)
    assert tags(firn, tenant) == {}
    assert ids_in(firn, tenant) == [1]


def test_a_first_commit_has_no_state_before_it_to_tag(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append_keeping(firn, table, Tag("kept", HOUR_MS), 1)
    assert tags(firn, tenant) == {}
    assert ids_in(firn, tenant) == [1]
