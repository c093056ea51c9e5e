"""A dry run of a sender to whom a policy shows a part of the table is planned for that part, and reads only that."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from handlers.update import Update, _edit
from service.catalog.tables import Catalog, Table
from service.edits.edits import EditOptions, Edits
from service.engine.jobs.edit import EditBase, FoundRows
from service.engine.jobs.edits.preview import preview
from service.errors import Forbidden, UnknownField
from service.guard.policies import Policies
from service.model.call import Call
from service.model.edits import Edit
from service.model.identity.principal import Grant, Principal
from service.model.policy.policy import POLICY_PROPERTY, PolicyRule, TablePolicy
from service.model.policy.view import RowView
from service.model.schema.definition import parse_schema
from service.model.schema.derived import DERIVED_PREFIX
from service.model.schema.partition import parse_partition
from tests.unit.iceberg_tables import ORDERS, open_catalog

FIELDS = {
    "id": {"type": "uuid"},
    "region": {"type": "string"},
    "price": {"type": "long"},
    "count": {"type": "long"},
    "total": {"type": "long"},
    "twice": {"type": "long"},
}
ONE = str(uuid.UUID(int=1))
BOUND, ADMIN = Principal("jwt:bob", (Grant("writer"),), "jwt"), Principal("jwt:ann", (Grant("admin"),), "jwt")


class Previewing:
    """Dry runs of UPDATE without Spark: what would be asked of it."""

    def __init__(self, home: Path, **columns: str) -> None:
        self.catalog: Catalog = open_catalog(home)
        schema = parse_schema({"fields": FIELDS})
        partition = parse_partition({"partitions": [{"field": "id"}]}, schema)
        derived = {DERIVED_PREFIX + "total": "price * count", DERIVED_PREFIX + "twice": "count * 2"}
        policy = TablePolicy({"writer": PolicyRule({"region": "EU"}, columns)}, "salt")
        properties = {"format-version": "2", **derived, POLICY_PROPERTY: policy.text}
        self.catalog.create(ORDERS, schema, partition, properties)
        self.asked: list[tuple[EditBase, Edit, RowView | None]] = []

    def run_for(self, call: Call, job: Any, base: EditBase, edit: Edit, shown: int, view: RowView | None) -> Any:
        assert job is preview
        self.asked.append((base, edit, view))
        return FoundRows({}, 0, digest="0:0"), []

    def update(self, principal: Principal, **fields: Any) -> tuple[EditBase, Edit, RowView | None]:
        table = self.catalog.load(ORDERS)
        sent = {"operation": "UPDATE", "tenant_id": ORDERS.tenant, "table": ORDERS.table, "updates": {"count": 1}}
        request = Update.model_validate({**sent, **({} if "filter" in fields else {"all": True}), **fields})

        def plan(table: Table) -> Edit:
            return _edit(request, table)

        edits = Edits(self, None, Policies(self.catalog))  # type: ignore[arg-type]
        options = EditOptions("", dry_run=True, partition_filter=request.partition_filter)
        edits.run(table, "UPDATE", plan, options, Call(principal=principal))
        return self.asked[-1]


def test_it_has_the_visible_columns_and_reads_through_the_policy(tmp_path: Path) -> None:
    previewing = Previewing(tmp_path, price="hidden")
    _, edit, view = previewing.update(BOUND)
    assert view is not None
    assert edit.schema.names == view.schema.names == ("id", "region", "count", "total", "twice")
    _, edit, view = previewing.update(ADMIN)
    assert (edit.schema.names, view) == (tuple(FIELDS), None)
    for fields in (
        {"updates": {"price": 1}},
        {"filter": {"price": 1}},
        {"updates": {"count": {"expression": "price"}}},
    ):
        with pytest.raises(UnknownField) as refused:
            previewing.update(BOUND, **fields)
        assert refused.value.suggestion != "price"
        previewing.update(ADMIN, **fields)


@pytest.mark.parametrize(
    ("columns", "computed"),
    [
        ({}, ["total", "twice"]),
        ({"price": "null"}, ["twice"]),
        ({"price": "hidden"}, ["twice"]),
        ({"total": "null"}, ["twice"]),
        ({"count": "null"}, []),
    ],
)
def test_derived_columns_are_computed_only_of_what_is_shown(
    columns: dict[str, str], computed: list[str], tmp_path: Path
) -> None:
    _, edit, _ = Previewing(tmp_path, **columns).update(BOUND)
    assert [one.column for one in edit.derived] == computed


def test_which_files_have_a_value_is_not_used_as_their_number_would_tell(tmp_path: Path) -> None:
    previewing = Previewing(tmp_path)
    base, _, _ = previewing.update(ADMIN, partition_filter={"id": ONE})
    assert base.only is not None
    base, _, _ = previewing.update(BOUND, partition_filter={"id": ONE})
    assert base.only is None


def test_a_partition_column_that_is_hidden_is_no_partition_column(tmp_path: Path) -> None:
    previewing = Previewing(tmp_path, id="hidden")
    with pytest.raises(Exception, match="the table is not partitioned"):
        previewing.update(BOUND, partition_filter={"id": ONE})


def test_nothing_is_previewed_if_no_column_is_shown(tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="no column"):
        Previewing(tmp_path, **dict.fromkeys(FIELDS, "hidden")).update(BOUND)
