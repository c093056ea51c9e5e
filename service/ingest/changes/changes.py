"""Apply a changed table file and dataset file to a table: all of the differences, or none."""

from dataclasses import dataclass

from service.catalog.alter import Alteration, alter
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.errors import InvalidRequest
from service.ingest.changes.difference import Change, FileDifference, dataset_changes, table_file_changes
from service.ingest.changes.trigger import Triggers
from service.ingest.exports.exports import Exports
from service.ingest.history import IngestHistory
from service.ingest.tables import ingestion_properties
from service.model.call import Call
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import dataset_of, table_file_of
from service.model.ingest.table_file import TableFile
from service.model.properties import COMMENT
from service.model.schema.evolution import SchemaChanges, evolve

APPLY = "APPLY_TABLE"


@dataclass(frozen=True)
class TableFileChanges:
    """Compares tables with their files, and applies the differences."""

    catalog: Catalog
    commits: Commits
    history: IngestHistory
    exports: Exports
    triggers: Triggers

    def difference(self, table: Table, config: TableFile, dataset: Dataset | None) -> FileDifference:
        """How the files differ from the table; without a dataset file the table keeps its own."""
        stored = table_file_of(table.properties)
        if stored is None:
            raise InvalidRequest(
                f"table {table.name.table!r} was not made from a table file, so that none can be applied to it; choose "
                "another name, and create the table",
                field="config",
            )
        # Its file keeps the name that it was created with, until another is applied.
        stored = stored.model_copy(update={"name": table.name.table})
        if config.namespace is None:
            config = config.model_copy(update={"namespace": stored.namespace})
        changes = table_file_changes(stored, config, has_rows=table.current_snapshot_id is not None)
        columns = SchemaChanges()
        if dataset is not None:
            found, columns = dataset_changes(dataset_of(table.properties), dataset, table.schema)
            changes += found
        return FileDifference(tuple(changes), columns)

    def check(self, table: Table, config: TableFile, dataset: Dataset | None) -> FileDifference:
        """How the files differ from the table; InvalidRequest if a difference cannot be applied."""
        self.exports.check(config, table)
        found = self.difference(table, config, dataset)
        refuse(found)
        return found

    def apply(self, table: Table, config: TableFile, dataset: Dataset | None, call: Call) -> Table:
        """The table after all differences were applied. InvalidRequest, and nothing is applied, if one is refused."""
        self.check(table, config, dataset)

        def change(current: Table, batch: str) -> Table:
            def gate() -> None:
                self.commits.must_be_ours(batch)

            return alter(self.catalog, current, batch, lambda now: self._alteration(now, config, dataset), gate)

        changed = self.commits.alter(table, APPLY, call, change)
        self.history.complete(changed)
        self.triggers.follow(changed)
        return changed

    def _alteration(self, table: Table, config: TableFile, dataset: Dataset | None) -> Alteration:
        found = self.difference(table, config, dataset)
        refuse(found)
        properties: dict[str, str | None] = dict(ingestion_properties(config, dataset))
        if config.description is None:
            properties[COMMENT] = None
        changes = found.columns
        after = evolve(table.schema, changes, table.past_partition) if changes.any else table.schema
        return Alteration(changes, after, properties)

    def is_applied(self, table: Table, config: TableFile, dataset: Dataset | None) -> bool:
        """Whether the table has exactly these files, also what is not a difference, such as an explicit default."""
        wanted = ingestion_properties(config, dataset)
        return table.properties.items() >= wanted.items()


def refuse(found: FileDifference) -> None:
    """Refuse differences of which one cannot be applied."""
    refused = found.refused
    if not refused:
        return
    first = refused[0]
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    raise InvalidRequest(
        f"config: {first.path} cannot change from {_short(first.before)} to {_short(first.after)}: "
        f"{first.refused}{more}; nothing was applied",
        field="dataset" if first.path.startswith("dataset.") else "config",
        details={"refused": [{**as_json(one), "reason": one.refused} for one in refused]},
    )


def as_json(change: Change) -> dict[str, object]:
    """A change as responses show it."""
    return {"path": change.path, "from": change.before, "to": change.after}


def _short(value: object) -> str:
    return "nothing" if value is None else str(value)[:100]
