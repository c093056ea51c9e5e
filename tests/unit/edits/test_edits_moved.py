"""An edit is of the table as it is in its turn, not of what that was when the request came."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from service.catalog.tables import Catalog, Table
from service.edits import ahead
from service.edits import edits as module
from service.edits.edits import EditCounts, EditOptions, Edits
from service.engine.iceberg.swap import TableChanged
from service.engine.jobs.edit import EditBase, FoundEdit, FoundRows
from service.errors import CommitConflict, UnknownField
from service.model.call import Call
from service.model.edits import ByFilter, Edit
from service.model.filters.predicates import EVERY_ROW
from service.model.names import BATCH_PROPERTY, EDIT_PROPERTY
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog


@dataclass
class Applying:
    """Finds nothing, and commits edits as `publish` does: not if the table has other columns than its base says."""

    catalog: Catalog
    edits: list[Edit] = field(default_factory=list)
    moves: int = 0
    """So often another program adds a column just before the commit."""

    @contextmanager
    def lend(self, call: Call) -> Iterator[None]:
        yield None

    @contextmanager
    def find(self, session: None, base: EditBase, edit: Edit, *, digest: bool) -> Iterator[FoundEdit]:
        self.edits.append(edit)
        yield FoundEdit(cast(Any, session), base, edit, FoundRows({}, 0, new=pa.table({})), "t")

    def stage(self, found: FoundEdit, counts: object) -> "Staged":
        return Staged(found.base)

    def publish(self, found: "FoundEdit | Staged", batch: str, *how: object) -> None:
        if self.moves:
            self.moves -= 1
            add_column(self.catalog, f"late_{self.moves}")
        iceberg = self.catalog.load(ORDERS).iceberg
        if iceberg.schema().schema_id != found.base.schema_id:
            raise TableChanged("the schema has changed meanwhile")
        message = {BATCH_PROPERTY: batch, EDIT_PROPERTY: json.dumps(vars(EditCounts()))}
        with iceberg.transaction() as transaction, transaction.update_snapshot(message).fast_append():
            pass


@dataclass
class Staged:
    """An edit that needs no files."""

    base: EditBase
    removed: tuple[str, ...] = ()


class Place(Composed):
    def edit(self, table: Table, decide: Any) -> None:
        self.parts[Edits].run(table, "UPDATE", decide, EditOptions("r"), Call("r1"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    catalog = open_catalog(tmp_path)
    append(make_table(catalog), "ch")
    engine = Applying(catalog)
    monkeypatch.setattr(module, "find", engine.find)
    monkeypatch.setattr(module, "stage", engine.stage)
    monkeypatch.setattr(module, "publish", engine.publish)
    monkeypatch.setattr(ahead, "commit_staged", engine.publish)
    return Place(tmp_path / "ledger.db", catalog=catalog, engine=engine)


def add_column(catalog: Catalog, name: str) -> None:
    with catalog.load(ORDERS).iceberg.update_schema() as change:
        change.add_column(name, StringType())


def drop_column(catalog: Catalog, name: str) -> None:
    with catalog.load(ORDERS).iceberg.update_schema() as change:
        change.delete_column(name)


def of_country(table: Table) -> Edit:
    """Asks for a column, and for every row."""
    table.schema.field("country")
    return Edit(table.schema, ByFilter(EVERY_ROW))


def test_an_edit_that_waited_for_a_change_of_columns_is_made_of_the_columns_there_are_then(place: Place) -> None:
    table = place.catalog.load(ORDERS)
    add_column(place.catalog, "colour")
    place.edit(table, of_country)
    [made] = place.engine.edits
    assert made.schema.names == ("id", "country", "colour")


def test_one_that_means_nothing_by_then_is_refused_as_that_and_tried_no_further(place: Place) -> None:
    table, asked = place.catalog.load(ORDERS), []

    def decide(current: Table) -> Edit:
        asked.append(current.schema.names)
        return of_country(current)

    drop_column(place.catalog, "country")
    with pytest.raises(UnknownField, match="country"):
        place.edit(table, decide)
    assert (asked, place.engine.edits) == ([("id", "country"), ("id",)], [])


def test_a_request_is_read_once_where_nothing_but_rows_have_changed(place: Place) -> None:
    table, asked = place.catalog.load(ORDERS), []

    def decide(current: Table) -> Edit:
        asked.append(current.current_snapshot_id)
        return of_country(current)

    append(place.catalog.load(ORDERS), "de")
    place.edit(table, decide)
    assert asked == [table.current_snapshot_id]


def test_what_another_program_changes_in_its_very_moment_is_followed(place: Place) -> None:
    place.engine.moves = 3
    place.edit(place.catalog.load(ORDERS), of_country)
    assert [len(edit.schema.names) for edit in place.engine.edits] == [2, 3, 4, 5]


def test_one_that_is_overtaken_each_time_is_given_up(place: Place) -> None:
    place.engine.moves = 9
    with pytest.raises(CommitConflict, match="send the request again"):
        place.edit(place.catalog.load(ORDERS), of_country)


def test_a_file_that_the_metadata_does_not_name_has_no_rows_and_no_bytes() -> None:
    """Spark read it all the same, so the row counts do not add up, and that is the error that says so."""
    base = EditBase("t", "u", 0, 1, True, {"a": 2}, {"a": 10}, False)
    assert (base.rows_in(["a", "b"]), base.bytes_of(["a", "b"])) == (2, 10)
