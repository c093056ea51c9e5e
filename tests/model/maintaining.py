"""Rules for operations that keep the rows: backups, compaction, other layouts."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.model.computed import DERIVED, Row
from tests.model.expected_edits import Pair
from tests.model.machine import Machine, bag, same
from tests.model.requests import PARTITIONS, SCHEMA, records

_BY_DERIVED = tuple([{"field": name}] for name in DERIVED)
# Seldom none: of an empty table there is little to change.
_FIRST = st.integers(0, 5).flatmap(lambda n: st.lists(records, min_size=4, max_size=12) if n else st.just([]))


class Maintaining(Machine):
    @initialize(by=st.sampled_from(PARTITIONS), sent=_FIRST)
    def create(self, by: list[dict[str, Any]], sent: list[dict[str, Any]]) -> None:
        self.partitioned_by = [b["field"] for b in by]
        table = {"schema": SCHEMA, "partition": {"partitions": by}, "properties": {"row_level": self.row_level}}
        answer = self.ok("CREATE_TABLE", **table, if_not_exists=True)
        assert (answer["table_created"], answer["table_existed"]) == (True, False)
        self.append(sent)

    # Backups.

    @precondition(lambda self: self.backups)
    @rule()
    def list_backups(self) -> None:
        listed = self.changes_nothing("LIST_BACKUPS")["backups"]
        assert {one["name"]: one["records"] for one in listed} == {
            name: len(rows) for name, rows in self.backups.items()
        }

    @precondition(lambda self: self.backups)
    @rule(data=st.data(), dry_run=st.booleans(), keep=st.booleans())
    def restore(self, data: st.DataObject, dry_run: bool, keep: bool) -> None:
        """The table holds what the backup holds; a derived column that it got since is computed."""
        name = data.draw(st.sampled_from(sorted(self.backups)), label="backup")
        rows = [self.computed_row(row) for row in self.backups[name]]
        if dry_run:
            answer = self.changes_nothing("RESTORE_BACKUP", name=name, dry_run=True)["plan"]
        else:
            answer = self.ok("RESTORE_BACKUP", name=name, create_backup=keep)
        assert (answer["records_before"], answer["records_after"]) == (len(self.rows), len(rows))
        if dry_run:
            return
        # Rows that are the same may lie in other files.
        assert answer["restored"] or same(rows, self.rows)
        assert ("reason" not in answer) == answer["restored"]
        self.kept(answer, wanted=keep and answer["restored"])
        self.done(answer, "RESTORE_BACKUP", rows, difference(self.rows, rows))

    def computed_row(self, row: Row) -> Row:
        return row | {name: DERIVED[name][1](row) for name in self.derived if name not in row}

    @precondition(lambda self: self.backups)
    @rule(data=st.data())
    def delete_backup(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.backups)), label="backup")
        assert self.ok("DELETE_BACKUP", name=name)["backup_deleted"]
        del self.backups[name]
        self.refused("BACKUP_NOT_FOUND", "RESTORE_BACKUP", name=name)

    # Files.

    @rule(force=st.booleans(), some=st.booleans(), expire=st.booleans())
    def compact(self, force: bool, some: bool, expire: bool) -> None:
        """Merging changes no row, whatever it merges, and its figures add up with DESCRIBE_TABLE's."""
        request: dict[str, Any] = {"force": force, "snapshot_retention_hours": 0 if expire else 168}
        if some and self.partitioned_by:
            request["partition_filter"] = {self.partitioned_by[0]: {"is_not_null": True}}
        before = self.describe()
        answer = self.ok("COMPACT", **request)
        after, stats = self.describe(), answer["stats"]
        assert (stats["files_before"], stats["files_after"]) == (before["file_count"], after["file_count"])
        assert (stats["bytes_before"], stats["bytes_after"]) == (before["total_bytes"], after["total_bytes"])
        assert stats["files_before"] - stats["files_compacted"] + stats["files_added"] == stats["files_after"]
        assert answer["compacted"] == (stats["files_compacted"] > 0) == ("reason" not in answer)
        made = 1 if answer["compacted"] else 0
        assert after["snapshot_count"] == before["snapshot_count"] + made - stats["snapshots_expired"]
        if expire:
            assert after["snapshot_count"] <= 1 + len(self.backups)
            self.past.clear()
            self.expired_before = len(self.mutations)
        self.now(answer, self.rows)

    @rule(
        by=st.none() | st.sampled_from(PARTITIONS + _BY_DERIVED),
        derive=st.sets(st.sampled_from(sorted(DERIVED)), max_size=2),
        how=st.fixed_dictionaries(
            {}, optional={"validate": st.booleans(), "batch_size": st.integers(1, 3), "delete_source": st.just(False)}
        ),
        look=st.sampled_from((None, None, "estimate", "dry_run")),
    )
    def repartition(
        self, by: list[dict[str, Any]] | None, derive: set[str], how: dict[str, Any], look: str | None
    ) -> None:
        """Another layout changes no row, but for the columns that it derives."""
        new = [name for name in sorted(derive) if name not in self.columns]
        columns = (*self.columns, *new)
        if by is not None and by[:1] and by[0]["field"] not in columns:
            by = None
        if by is None and not new:
            return
        request: dict[str, Any] = {"transform": {name: {"expression": DERIVED[name][0]} for name in new}}
        if by is not None:
            request["partition"] = {"partitions": by}
        if look:
            self.look_at(self.changes_nothing("REPARTITION", **request, **{look: True}))
            return
        answer = self.ok("REPARTITION", **request, **how)
        assert ("reason" not in answer) == answer["repartitioned"]
        assert answer["repartitioned"] or not new
        if answer["repartitioned"]:
            assert answer["stats"]["records"] == len(self.rows)
        self.kept(answer, wanted=answer["repartitioned"] and how.get("delete_source") is False)
        if by is not None:
            self.partitioned_by = [b["field"] for b in by]
            self.plans = [plan for plan in self.plans if "partition_filter" not in plan.change.fields]
        self.columns = columns
        self.now(answer, [row | {name: DERIVED[name][1](row) for name in new} for row in self.rows])

    def look_at(self, answer: dict[str, Any]) -> None:
        if "estimate" in answer:
            estimate = answer["estimate"]
            assert estimate["records"] == sum(one["records"] for one in estimate["partitions"]) == len(self.rows)
        else:
            assert answer["plan"]["records"] <= len(self.rows)


def difference(before: list[Row], after: list[Row]) -> list[Pair]:
    """What went and what came."""
    gone, come = bag(before) - bag(after), bag(after) - bag(before)
    return [*((dict(row), None) for row in gone.elements()), *((None, dict(row)) for row in come.elements())]
