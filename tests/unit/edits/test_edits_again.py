"""An edit that has happened is answered from its snapshot, whatever has become of the table since."""

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from handlers.deduplicate import deduplicate
from handlers.delete import delete
from handlers.update import update
from handlers.upsert import upsert
from handlers.write import write
from service.app import App
from service.catalog.tables import Catalog, Table
from service.commits.backups import Backups
from service.commits.commit import Commits
from service.commits.small_files import SmallFileChecks
from service.edits.edits import EditCounts, Edits
from service.engine.session.engine import Engine
from service.errors import FirnError
from service.guard.policies import Policies
from service.model.call import Call, IdempotencyKey
from service.model.names import EDIT_PROPERTY
from service.operations.operation import Operation
from service.operations.shared_edits import RowEdits
from service.writes.writes import Writes
from tests.unit.commit_setup import ORDERS, CommitSetup

ADDRESS = {"tenant_id": ORDERS.tenant, "namespace": ORDERS.namespace, "table": ORDERS.table}
FILTER = {"gone": 1}
# Requests for columns that the table does not have any more, and for a partition that it is not divided by.
EDITS: list[tuple[Operation, dict[str, Any]]] = [
    (update, {"updates": {"gone": 1}, "all": True}),
    (update, {"updates": {"id": 1}, "filter": FILTER}),
    (update, {"updates": {"id": 1}, "all": True, "partition_filter": FILTER}),
    (delete, {"filter": FILTER}),
    (upsert, {"records": [{"gone": 1}], "key_cols": ["gone"]}),
    (deduplicate, {"key_cols": ["gone"]}),
    (write, {"mode": "overwrite", "records": [{"gone": 1}]}),
]


@pytest.fixture
def setup(tmp_path: Path) -> CommitSetup:
    return CommitSetup(tmp_path / "ledger.db")


def run(edit: Operation, request: Any, app: App, setup: CommitSetup, call: Call) -> Any:
    """The result, whether the request waited for a commit that it may have shared or not."""
    edits, writes = Edits(app.parts[Engine], setup.commits, app.parts[Policies]), setup.parts[Writes]
    row_edits = RowEdits(setup.commits, app.parts[Backups], edits, app.parts[SmallFileChecks], writes)
    ours = {
        Catalog: setup.catalog.as_catalog,
        Commits: setup.commits,
        Edits: edits,
        Writes: writes,
        RowEdits: row_edits,
    }
    answers: list[Any] = []
    call.respond = lambda result: bytes(answers.append(result) or b"")
    answer = edit.bind(app.parts.replaced(ours))(request, call)
    if isinstance(answer, Future):
        answer.result(30)
        return answers[-1]
    return answer


@pytest.mark.parametrize(("edit", "fields"), EDITS)
def test_an_edit_whose_answer_was_lost_is_answered_though_the_table_has_other_columns_by_now(
    edit: Operation, fields: dict[str, Any], app: App, setup: CommitSetup
) -> None:
    key = IdempotencyKey(edit.name, ORDERS, "k1", "print")
    counts = {**vars(EditCounts()), "updated": 3, "deleted": 4, "inserted": 5, "files": 2}

    def change(table: Table, batch: str) -> None:
        setup.catalog.append(table.name, batch, **{EDIT_PROPERTY: json.dumps(counts)})

    first = setup.commits.commit(setup.catalog.load(ORDERS), edit.name, Call("r1", key), change)
    request = edit.request.model_validate({"operation": edit.name, **ADDRESS, **fields})
    answer: Any = run(edit, request, app, setup.restarted(), setup.retry(key))
    assert (answer.metadata.snapshot_id, answer.files_affected) == (str(first.snapshot_id), 2)
    assert setup.history() == 1


@pytest.mark.parametrize(("edit", "fields"), EDITS)
def test_one_that_has_not_happened_is_refused(
    edit: Operation, fields: dict[str, Any], app: App, setup: CommitSetup
) -> None:
    request = edit.request.model_validate({"operation": edit.name, **ADDRESS, **fields})
    with pytest.raises(FirnError):
        run(edit, request, app, setup, Call("r1", IdempotencyKey(edit.name, ORDERS, "k1", "print")))
    assert (setup.history(), setup.notes()) == (0, [])
