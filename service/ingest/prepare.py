"""Before a file is ingested: it is fetched, looked up among what was ingested, and its columns are compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from service.catalog.alter import Alteration, alter
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.engine.jobs.ingest.files import all_pass, field_types
from service.engine.session.engine import Engine
from service.errors import FileRejected, InvalidFile, InvalidRequest
from service.ingest.day_files import DayFile, IngestOptions
from service.ingest.drift import Drift, adopted, compare
from service.ingest.files import stored_text
from service.ingest.history import INGEST, IngestHistory
from service.ingest.inference import inferred
from service.ingest.sources.fetch import FetchedFile, fetch
from service.ingest.sources.readable import readable
from service.ledger.ingestions import IngestionRecord
from service.model.call import Call
from service.model.ingest.dataset import CsvFormat, Dataset, DriftRules
from service.model.ingest.fingerprint import fingerprint_of
from service.model.ingest.reading import ReadableFile
from service.model.ingest.reserved import DATASET_PROPERTY, DATE_FIELD, dataset_of
from service.model.schema.evolution import SchemaChanges, evolve
from service.model.schema.types import ColumnType, DecimalType, Field, Primitive

_EVERYTHING = DriftRules(new="evolve", missing="evolve", retyped="evolve")


@dataclass(frozen=True)
class PreparedFile:
    """A file that can be read, with the rules by which it is read."""

    file: DayFile
    fetched: FetchedFile
    readable: ReadableFile
    dataset: Dataset
    drift: Drift
    evolves: bool = False
    """Whether `dataset` is another one than the table's, which the table gets first."""

    wider: Mapping[str, str] = field(default_factory=dict)
    """The types in the file of decimals that have more digits than their columns."""
    given: Dataset | None = None
    """The rules of the request, if `dataset` differs from them."""

    @property
    def dataset_hash(self) -> str:
        return fingerprint_of(self.given or self.dataset)


@dataclass(frozen=True)
class Preparation:
    """Prepares files to be ingested, and tables for their columns."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    history: IngestHistory

    def prepare(
        self,
        table: Table,
        file: DayFile,
        options: IngestOptions,
        folder: Path,
        call: Call,
        progress: Callable[[int], object],
    ) -> "PreparedFile | FetchedFile":
        """The file, ready to be read; only what was fetched, if the table has exactly this already.

        Raises InvalidFile if it cannot be read, and FileRejected if its columns are not those that are expected.
        """
        dataset = options.dataset or dataset_of(table.properties)
        how = dataset.csv if dataset else CsvFormat()
        properties = table.iceberg.io.properties  # of the catalog's storage, with its credentials
        fetched = fetch(file.source, folder, properties, quote=how.quote, encoding=how.encoding, progress=progress)
        if file.version is not None and file.version != (fetched.bytes, fetched.modified_ms):
            raise InvalidFile(f"{file.source.name!r} has changed since it was found; it is read once it is complete")
        if (
            dataset is not None
            and not options.accept_drift
            and self._is_known(table, file.day, fetched, dataset, options, call)
        ):
            return fetched
        headless = None if dataset is None else tuple(c.source_name for c in dataset.columns if c.source_name)
        read = readable(fetched, folder, how, headless)
        if dataset is None:
            types = self.engine.run_for(call, field_types, read, guess=True)
            return PreparedFile(file, fetched, read, inferred(read, types, how), Drift(), evolves=True)
        types = self.engine.run_for(call, field_types, read, guess=False) if read.is_typed else {}
        rules = _EVERYTHING if options.accept_drift else dataset.on_drift
        every = compare(read.fields, types, dataset, with_wider_decimals=True)
        drift = every if rules.retyped == "evolve" else compare(read.fields, types, dataset)
        if refused := drift.refused(rules):
            details: dict[str, Any] = {"drift": drift.as_json()}
            if drift.new:
                types = types or self.engine.run_for(call, field_types, read, guess=True)
                details["types"] = {name: types[name] for name in drift.new}
            unreadable = any("\N{REPLACEMENT CHARACTER}" in name for name in drift.new)
            hint = f"Its header is not {how.encoding}: csv.encoding of the dataset may be wrong. " if unreadable else ""
            raise FileRejected(
                f"the columns of {file.source.name!r} are not those that are expected: {refused}; nothing was "
                f"ingested. {hint}Correct the file, change the dataset or its on_drift, or accept the drift",
                details=details,
            )
        evolved = self._evolved(dataset, drift.evolved(rules), read, types, call)
        wider = {name: kind for name, kind in every.retyped.items() if name not in drift.retyped}
        return PreparedFile(file, fetched, read, evolved, drift, evolves=evolved is not dataset, wider=wider)

    def _is_known(
        self, table: Table, day: date, fetched: FetchedFile, dataset: Dataset, options: IngestOptions, call: Call
    ) -> bool:
        def passes() -> bool:
            filters = [predicate for _, predicate in dataset.predicates]
            target = (table.spark_name, table.current_snapshot_id)
            return self.engine.run_for(call, all_pass, *target, DATE_FIELD.name, day, filters)

        wanted = IngestionRecord("", str(day), "", fetched.content_hash, fingerprint_of(dataset), options.mode)
        return self.history.has(table, wanted, passes)

    def _evolved(
        self, dataset: Dataset, drift: Drift, file: ReadableFile, types: Mapping[str, str], call: Call
    ) -> Dataset:
        """The dataset after it has adopted the columns of a file."""
        if not drift:
            return dataset
        if drift.new and not types:
            types = self.engine.run_for(call, field_types, file, guess=True)
        return adopted(dataset, drift, types)

    def adopt(self, table: Table, dataset: Dataset, call: Call, *, stores: bool) -> Table:
        """The table with the columns of a dataset; with `stores`, the dataset is the table's own from now on.

        InvalidRequest if a column of the table has another type.
        """
        properties = {DATASET_PROPERTY: stored_text(dataset)} if stores else {}
        wanted = self._alteration(table, dataset, properties)
        if not wanted.changes.any and table.properties.items() >= properties.items():
            return table
        if not stores:
            missing = ", ".join(wanted.changes.add) or ", ".join(wanted.changes.types)
            raise InvalidRequest(
                f"dataset: the table has no such columns: {missing}; leave them out, or change the table's dataset",
                field="dataset",
            )

        def change(current: Table, batch: str) -> Table:
            def gate() -> None:
                self.commits.must_be_ours(batch)

            return alter(
                self.catalog, current, batch, lambda newest: self._alteration(newest, dataset, properties), gate
            )

        return self.commits.alter(table, INGEST, call.without_key(), change)

    @staticmethod
    def _alteration(table: Table, dataset: Dataset, properties: Mapping[str, str]) -> Alteration:
        known = {field.name: field for field in table.schema.fields}
        add: dict[str, Field] = {}
        widened = {}
        for wanted in dataset.table_schema.fields:
            has = known.get(wanted.name)
            if has is None:
                add[wanted.name] = wanted
            elif has.type != wanted.type:
                if _holds(has.type, wanted.type):
                    continue  # the table's was widened before
                widened[wanted.name] = wanted.type
        changes = SchemaChanges(add=add, types=widened)
        after = evolve(table.schema, changes, table.past_partition) if changes.any else table.schema
        return Alteration(changes, after, dict(properties))


def _holds(has: ColumnType, wanted: ColumnType) -> bool:
    """Whether a column of the table has become wider than a dataset says."""
    if isinstance(has, DecimalType) and isinstance(wanted, DecimalType):
        return has.scale == wanted.scale and has.precision > wanted.precision
    return (has, wanted) == (Primitive("long"), Primitive("integer"))
