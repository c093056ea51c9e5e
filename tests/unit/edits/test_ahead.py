"""An edit that was found and written ahead fits a later state only if nothing in between concerns its rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.types import StringType

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog, Table
from service.commits.edit_base import base_of
from service.edits import ahead as module
from service.edits.ahead import LaterCommits, StagedAhead
from service.engine.iceberg.staging import StagedFiles
from service.engine.iceberg.swap import CommitTarget
from service.engine.jobs.edit import EditBase, FoundEdit, FoundRows
from service.engine.jobs.edits.publish import StagedEdit
from service.model.call import Call
from service.model.edits import ByFilter, Duplicates, Edit
from service.model.filters.predicates import EVERY_ROW
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog


@dataclass
class Searching:
    """Finds as many rows as it is told, and remembers which files it searched."""

    hits: int = 0
    searched: list[frozenset[str]] = field(default_factory=list)

    @contextmanager
    def lend(self, call: Call) -> Iterator[None]:
        yield None

    @contextmanager
    def find(self, session: None, base: EditBase, edit: Edit) -> Iterator[FoundEdit]:
        assert base.only is not None
        self.searched.append(base.only)
        yield FoundEdit(cast(Any, session), base, edit, FoundRows({}, self.hits), "t")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = open_catalog(tmp_path)
    append(make_table(made), "ch")
    return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Searching:
    made = Searching()
    monkeypatch.setattr(module, "find", made.find)
    return made


def now(catalog: Catalog) -> Table:
    return catalog.load(ORDERS)


def staged(table: Table, which: Any = None) -> StagedAhead:
    """An edit that changes a row of each file of a table."""
    files = {file.path: 1 for file in list_files(table).data}
    target = CommitTarget(cast(Any, None), table.spark_name, table.uuid, table.schema_id)
    edit = StagedEdit(target, table.current_snapshot_id, StagedFiles(None, ()), 1, {}, files, {})
    return StagedAhead(Edit(table.schema, which or ByFilter(EVERY_ROW)), FoundRows(files, len(files)), edit, table)


def later(engine: Searching, *, keeps_files: bool = False) -> LaterCommits:
    def base(table: Table) -> EditBase:
        return replace(base_of(table), keeps_files=keeps_files)

    return LaterCommits(cast(Any, engine), Call("r"), base)


def overwrite(table: Table) -> None:
    """Remove every file."""
    with table.iceberg.transaction() as transaction, transaction.update_snapshot().delete() as files:
        files.delete_by_predicate(AlwaysTrue())


def test_it_fits_the_state_it_was_made_for_without_a_search(catalog: Catalog, engine: Searching) -> None:
    assert later(engine).fits(staged(now(catalog)), now(catalog))
    assert engine.searched == []


@pytest.mark.parametrize(("hits", "fits"), [(0, True), (1, False)])
def test_only_the_files_that_came_are_searched(catalog: Catalog, engine: Searching, hits: int, fits: bool) -> None:
    engine.hits = hits
    made = staged(now(catalog))
    append(now(catalog), "de")
    after = now(catalog)
    assert later(engine).fits(made, after) == fits
    assert engine.searched == [{f.path for f in list_files(after).data} - made.rows.files.keys()]
    assert (made.fits is after) == fits


def test_what_was_searched_is_not_searched_again(catalog: Catalog, engine: Searching) -> None:
    made, compare = staged(now(catalog)), later(engine)
    append(now(catalog), "de")
    assert compare.fits(made, now(catalog))
    append(now(catalog), "fr")
    assert compare.fits(made, now(catalog))
    assert [len(files) for files in engine.searched] == [1, 1]


@pytest.mark.parametrize(("fully", "searched"), [(False, 0), (True, 1)])
def test_the_little_that_came_is_searched_without_the_lock_only_if_asked(
    catalog: Catalog, engine: Searching, fully: bool, searched: int
) -> None:
    engine.hits = 1
    made = staged(now(catalog))
    append(now(catalog), "de")
    assert later(engine).catch_up(made, lambda: now(catalog), fully=fully) == (not fully)
    assert len(engine.searched) == searched


def test_it_does_not_fit_if_one_of_its_files_is_gone(catalog: Catalog, engine: Searching) -> None:
    made = staged(now(catalog))
    overwrite(now(catalog))
    assert not later(engine).fits(made, now(catalog))
    assert engine.searched == []


def test_it_does_not_fit_other_columns(catalog: Catalog, engine: Searching) -> None:
    made = staged(now(catalog))
    with now(catalog).iceberg.update_schema() as change:
        change.add_column("colour", StringType())
    assert not later(engine).fits(made, now(catalog))


def test_one_that_removes_files_does_not_fit_once_these_are_being_merged(catalog: Catalog, engine: Searching) -> None:
    made = staged(now(catalog))
    assert not later(engine, keeps_files=True).fits(made, now(catalog))


def test_a_deduplication_fits_only_what_others_appended(catalog: Catalog, engine: Searching) -> None:
    append(now(catalog), "de")
    made = staged(now(catalog), Duplicates(("id",)))
    append(now(catalog), "fr")
    assert later(engine).fits(made, now(catalog))
    made.rows = replace(made.rows, files={})
    overwrite(now(catalog))
    assert not later(engine).fits(made, now(catalog))
    assert engine.searched == []


def test_an_upsert_that_replaces_rows_fits_what_others_appended_without_its_keys(
    catalog: Catalog, engine: Searching
) -> None:
    append(now(catalog), "de")
    made = staged(now(catalog))
    made.rows = replace(made.rows, replaced=1)
    append(now(catalog), "fr")
    assert later(engine).fits(made, now(catalog))
    assert len(engine.searched) == 1
    made.rows = replace(made.rows, files={})
    overwrite(now(catalog))
    assert not later(engine).fits(made, now(catalog))
    assert len(engine.searched) == 1


@pytest.mark.parametrize(("files", "searches"), [(1, 0), (60, 1)])
def test_before_the_lock_is_held_only_many_new_files_are_searched(
    catalog: Catalog, engine: Searching, files: int, searches: int
) -> None:
    made = staged(now(catalog))
    append(now(catalog), *["de"] * files)
    assert later(engine).catch_up(made, lambda: now(catalog))
    assert len(engine.searched) == searches
