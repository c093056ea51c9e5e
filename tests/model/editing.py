"""Rules that change rows, or say what a change would be and hold it to that."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model import edits
from tests.model.expected_edits import Change, ExpectedEdit, Pair, expected_edit
from tests.model.machine import Machine, Plan, counts, row_of, same
from tests.model.requests import SCHEMA, records, wrong_records

_SHOWN = 20
_backup = st.sampled_from(({}, {}, {"create_backup": True}, {"create_backup": False}))


class Editing(Machine):
    @rule(sent=st.lists(records, min_size=1, max_size=6))
    def write(self, sent: list[dict[str, Any]]) -> None:
        self.append(sent)

    @rule(request=edits.overwrite, how=_backup)
    def overwrite(self, request: Change, how: dict[str, bool]) -> None:
        self.change(request, **how)

    @rule(request=edits.upsert, how=_backup)
    def upsert(self, request: Change, how: dict[str, bool]) -> None:
        """By any key; one that several rows have changes them all."""
        self.change(request, **how)

    @rule(request=edits.update, how=_backup)
    def update(self, request: Change, how: dict[str, bool]) -> None:
        self.change(request, **how)

    @rule(request=edits.delete, how=_backup)
    def delete(self, request: Change, how: dict[str, bool]) -> None:
        self.change(request, **how)

    @rule(request=edits.deduplicate, how=_backup)
    def deduplicate(self, request: Change, how: dict[str, bool]) -> None:
        self.change(request, **how)

    # What is promised.

    @rule(request=edits.changes)
    def preview(self, request: Change) -> None:
        """A dry run says what the change then does, and changes nothing itself."""
        change = self.fitted(request)
        plan = self.planned(change, expected_edit(change, self.rows, self.derived))
        if plan:
            self.plans.append(plan)

    @rule(request=edits.changes, meanwhile=st.none() | edits.changes)
    def preview_and_commit(self, request: Change, meanwhile: Change | None) -> None:
        change = self.fitted(request)
        plan = self.planned(change, expected_edit(change, self.rows, self.derived))
        if plan and meanwhile:
            self.change(meanwhile)
        if plan:
            self.commit(plan)

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), dry_run=st.booleans(), how=_backup)
    def as_planned(self, data: st.DataObject, dry_run: bool, how: dict[str, bool]) -> None:
        plan = data.draw(st.sampled_from(self.plans), label="plan")
        self.commit(plan, **({"dry_run": True} if dry_run else how))

    def planned(self, change: Change, expected: ExpectedEdit) -> Plan | None:
        if expected.refusal:
            self.refused(expected.refusal, change.operation, **change.fields, dry_run=True)
            return None
        answer = self.changes_nothing(change.operation, **change.fields, dry_run=True)["plan"]
        assert counts(answer) == expected.counts
        shows(answer["sample"], expected.pairs)
        assert "backup" not in answer
        figures = {name: answer[name] for name in ("files_affected", "partitions_affected")}
        return Plan(change, answer["plan_token"], expected.held, self.snapshot, figures)

    def commit(self, plan: Plan, **how: bool) -> None:
        """What was planned is done where the rows concerned are what they were, and else refused."""
        change = plan.change
        expected = expected_edit(change, self.rows, self.derived)
        fields = {**change.fields, "plan_token": plan.token, **how}
        code = expected.refusal or ("" if same(expected.held, plan.held) else "PLAN_STALE")
        if code:
            self.refused(code, change.operation, **fields)
        elif how.get("dry_run"):
            assert counts(self.changes_nothing(change.operation, **fields)["plan"]) == expected.counts
        else:
            same_files = plan.snapshot == self.snapshot
            answer = self.ok(change.operation, **fields)
            assert not same_files or plan.figures == {name: answer[name] for name in plan.figures}
            self.made(answer, change, expected, how.get("create_backup", False))

    # What is refused.

    @rule(sent=wrong_records(), operation=st.sampled_from(("WRITE", "UPSERT")))
    def refuse_records(self, sent: list[dict[str, Any]], operation: str) -> None:
        ids = [r["id"] for r in sent]
        if operation == "UPSERT" and len(set(ids)) < len(ids):
            return
        self.refused("INVALID_RECORD", operation, records=self.known(sent))

    @precondition(lambda self: self.rows)
    @rule(
        request=st.sampled_from(
            (
                ("UPDATE", {"updates": {"name": None}, "all": True}, "INVALID_REQUEST"),
                ("UPDATE", {"updates": {"n": 2**31}, "all": True}, "INVALID_REQUEST"),
                ("UPDATE", {"updates": {"nn": 1}, "all": True}, "UNKNOWN_FIELD"),
                ("UPDATE", {"updates": {"n": 1}}, "INVALID_REQUEST"),
                ("UPDATE", {"updates": {"n": 1}, "all": True, "backup_retention_hours": 1}, "INVALID_REQUEST"),
                ("DELETE", {}, "INVALID_REQUEST"),
                ("DELETE", {"filters": []}, "INVALID_REQUEST"),
                ("DELETE", {"all": True, "plan_token": "no token"}, "INVALID_REQUEST"),
                ("DELETE", {"all": True, "partition_filter": {"price": 1}}, "INVALID_FILTER"),
                ("UPDATE", {"updates": {"n": 1}, "filter": {}}, "INVALID_REQUEST"),
                ("DELETE", {"filter": {"n": {"gt": "x"}}}, "INVALID_FILTER"),
                ("DELETE", {"filter": {"m": 1}}, "UNKNOWN_FIELD"),
                ("UPSERT", {"records": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "INVALID_RECORD"),
                ("UPSERT", {"records": [{"id": 1, "name": "a"}], "update_cols": ["id"]}, "INVALID_REQUEST"),
                ("UPSERT", {"records": [{"id": 1, "name": "a"}], "key_cols": ["kind"]}, "INVALID_RECORD"),
                ("UPSERT", {"records": [], "key_cols": ["kindd"]}, "UNKNOWN_FIELD"),
                ("DEDUPLICATE", {"key_cols": ["id"], "order_by": ["nn"]}, "UNKNOWN_FIELD"),
                ("REPARTITION", {}, "INVALID_REQUEST"),
                ("RESTORE_BACKUP", {"name": "backup-20240501T101112045Z-delete-1f0c9a7e"}, "BACKUP_NOT_FOUND"),
                ("CREATE_TABLE", {"schema": SCHEMA}, "TABLE_EXISTS"),
            )
        )
    )
    def refuse(self, request: tuple[str, dict[str, Any], str]) -> None:
        operation, fields, code = request
        self.refused(code, operation, **fields)


def shows(sample: list[dict[str, Any]], pairs: list[Pair]) -> None:
    """A dry run shows rows as they are and as they would be: all of them, or as many as it may."""
    shown = Counter(repr([row and row_of(row) for row in (one.get("before"), one.get("after"))]) for one in sample)
    assert len(sample) == min(_SHOWN, len(pairs))
    assert shown <= Counter(repr([*pair]) for pair in pairs)
