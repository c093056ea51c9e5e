"""An edit is of the table as it is in its turn, not of what that was when the request came."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.types import StringType

from service.catalog.tables import Catalog, Table
from service.changes import ByFilter, Edit
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.edits.edits import Counts, Edits, Wish
from service.engine.edit import Base, Found, Order
from service.engine.engine import Engine
from service.engine.swap import Moved
from service.errors import CommitConflict, UnknownField
from service.names import BATCH_PROPERTY, EDIT_PROPERTY
from service.predicates import EVERY_ROW
from tests.fakes import MuteLedger
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog


@dataclass
class Applying:
    """Commits edits as the job `apply` does: not where the table has other columns than its base says."""

    catalog: Catalog
    edits: list[Edit] = field(default_factory=list)
    moves: int = 0
    """So often another program adds a column just before the commit."""

    @property
    def as_engine(self) -> Engine:
        return cast(Engine, self)

    def run(self, job: Any, base: Base, edit: Edit, order: Order) -> Found:
        self.edits.append(edit)
        if self.moves:
            self.moves -= 1
            add_column(self.catalog, f"late_{self.moves}")
        iceberg = self.catalog.load(ORDERS).iceberg
        if iceberg.schema().schema_id != base.schema_id:
            raise Moved("the schema has changed meanwhile")
        said = {BATCH_PROPERTY: order.batch, EDIT_PROPERTY: json.dumps(vars(Counts()))}
        with iceberg.transaction() as transaction, transaction.update_snapshot(said).fast_append():
            pass
        return Found({}, 0)


@dataclass
class Place:
    catalog: Catalog
    commits: Commits
    engine: Applying

    def edit(self, table: Table, decide: Any) -> None:
        Edits(self.engine.as_engine, self.commits).run(table, "UPDATE", decide, Wish("r"), Ask("r1"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    catalog = open_catalog(tmp_path)
    append(make_table(catalog), "ch")
    commits = Commits(catalog, MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}"), pauses_s=(0, 0))
    return Place(catalog, commits, Applying(catalog))


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
