"""UPDATE, DELETE, UPSERT and every other change of rows in place: previewed, counted, verified, committed at one go."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from service.catalog.files import has_deletes, list_files, matching_files
from service.catalog.tables import Table
from service.changes import ByFilter, ByKey, Edit
from service.commits.ask import Ask
from service.commits.commit import Commits, Effect
from service.commits.holds import Holds
from service.edits.backups import backup_of
from service.edits.tokens import Token
from service.engine.edit import Base, Found, Order, Sample, apply, preview
from service.engine.engine import Engine
from service.engine.swap import Moved, Tag
from service.errors import CommitConflict, InvalidFilter, InvalidRecord
from service.names import EDIT_PROPERTY
from service.pruning import uuid_expression

# So many rows a dry run shows.
SHOWN = 20


@dataclass(frozen=True)
class Wish:
    """How an edit is wanted: only previewed, held to a preview, with the state before it kept."""

    request: str
    """A digest of what the request says of the edit itself."""
    dry_run: bool = False
    token: Token | None = None
    tag: Callable[[Table], Tag | None] = lambda table: None
    partition_filter: Any = None
    """What the edit is kept to, as the request says it; the edit's predicate holds it, too."""


@dataclass(frozen=True)
class Counts:
    """The figures of an edit."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    unchanged: int = 0
    files: int = 0
    """Data files that held a row concerned."""
    partitions: int = 0
    scanned_files: int = 0


@dataclass(frozen=True)
class Outcome:
    """What an edit came to, or would."""

    effect: Effect
    counts: Counts
    backup: str | None = None
    samples: tuple[Sample, ...] | None = None
    plan_token: str | None = None


Decide = Callable[[Table], Edit]
"""What a request means for a table as it is, or a refusal of it."""
Check = Callable[[Edit, Found], None]


@dataclass(frozen=True)
class Edits:
    """Changes rows, one commit an edit."""

    engine: Engine
    commits: Commits
    holds: Holds = field(default_factory=Holds)

    def run(
        self,
        table: Table,
        operation: str,
        decide: Decide,
        wish: Wish,
        ask: Ask,
        check: Check = lambda edit, found: None,
    ) -> Outcome:
        """Make an edit, or see what it would do. `check` refuses what was found and must not be done."""
        if wish.token:
            wish.token.check_table(table.uuid)
        if wish.dry_run:
            return self._previewed(table, decide(table), wish, check)
        # What has happened has, whatever the request would mean for the table by now.
        if earlier := self.commits.earlier(table, ask):
            return _outcome(earlier, Counts())
        made, seen, edit = Counts(), table, decide(table)

        def change(current: Table, batch: str) -> None:
            nonlocal made, seen, edit
            if not _alike(current, seen):
                seen, edit = current, decide(current)
            base = base_of(current, wish.partition_filter)

            def checked(found: Found) -> None:
                _check(edit, found, check, wish)

            def counts(found: Found) -> Mapping[str, int]:
                return asdict(_counts(current, edit, found))

            leave = self.commits.leave(batch, ask)
            order = Order(batch, counts, checked, leave, wish.tag(current), digest=wish.token is not None)
            try:
                found = self.engine.run(apply, base, edit, order)
            except Moved as e:
                raise CommitConflict(f"{e}; send the request again") from e
            made = _counts(current, edit, found)

        effect = self.commits.commit(table, operation, ask, change)
        return _outcome(effect, made)

    def _previewed(self, table: Table, edit: Edit, wish: Wish, check: Check) -> Outcome:
        wish.tag(table)  # made for nothing but its refusals
        with self.holds.reading(table.uuid, table.current_snapshot_id):
            base = base_of(table, wish.partition_filter)
            found, samples = self.engine.run(preview, base, edit, SHOWN)
        _check(edit, found, check, wish)
        token = Token(table.uuid, wish.request, found.digest)
        counts = _counts(table, edit, found)
        return Outcome(Effect(table, None), counts, samples=tuple(samples), plan_token=token.text())


def _check(edit: Edit, found: Found, check: Check, wish: Wish) -> None:
    """Refuse what was found and must not be done."""
    check(edit, found)
    if found.outside is not None:
        raise InvalidRecord(
            f"records[{found.outside}] would lie outside of partition_filter, where nothing is looked at or written; "
            "leave it out, send the columns that the filter names (a new row has null in those it lacks), or widen "
            "the filter",
            field=f"records[{found.outside}]",
            details={"record": found.outside},
        )
    if wish.token:
        wish.token.check(found.digest)


def _alike(one: Table, other: Table) -> bool:
    """Whether a request means the same for one state of a table as for another."""
    return (one.schema_id, one.spec_id, one.derived) == (other.schema_id, other.spec_id, other.derived)


def base_of(current: Table, partition_filter: Any = None) -> Base:
    """The state an edit is made on."""
    files = list_files(current).data
    return Base(
        current.spark_name,
        current.uuid,
        current.schema_id,
        current.current_snapshot_id,
        current.head_has_table_schema,
        {file.path: file.rows for file in files},
        {file.path: file.bytes for file in files},
        has_deletes(current),
        _only(current, partition_filter),
    )


def _only(current: Table, partition_filter: Any) -> frozenset[str] | None:
    """The files that a filter by uuid leaves; None where Spark finds them as well, or nobody but Spark can."""
    try:
        pruning = uuid_expression(partition_filter, current.schema, current.partition)
    except InvalidFilter:  # a value beside the uuid has no JSON
        return None
    return None if pruning is None else frozenset(file.path for file in matching_files(current, pruning))


def _counts(table: Table, edit: Edit, found: Found) -> Counts:
    stays = isinstance(edit.which, ByKey) or (isinstance(edit.which, ByFilter) and edit.which.assignments is not None)
    groups = {file.path: file.group for file in list_files(table).data} if found.files else {}
    return Counts(
        updated=found.hits if stays else 0,
        deleted=0 if stays else found.hits,
        inserted=0 if found.new is None else found.new.num_rows,
        unchanged=found.unchanged,
        files=len(found.files),
        partitions=len({groups[path] for path in found.files}),
        scanned_files=found.scanned_files,
    )


def _outcome(effect: Effect, made: Counts) -> Outcome:
    """Of a commit, what its snapshot says: that outlives an answer that was lost."""
    if effect.snapshot is None:
        return Outcome(effect, made)
    counts = Counts(**json.loads(effect.snapshot.summary[EDIT_PROPERTY]))
    return Outcome(effect, counts, backup_of(effect.snapshot))
