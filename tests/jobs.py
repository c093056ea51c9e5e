"""Jobs on a ledger of their own, and rows as a compaction makes them."""

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.jobs.job import BULK, BulkProgress, Job
from service.jobs.jobs import Jobs, Kind
from service.ledger.jobs import JobRecord, JobRecords
from service.ledger.ledger import Ledger
from service.model.call import Call
from service.model.names import TableName
from tests.fakes import FakeCatalog


def jobs_on(ledger: Ledger, commits: Commits | None = None) -> Jobs:
    """The jobs of one process; bulk loads and compactions are known to write files."""
    commits = commits or Commits(FakeCatalog().as_catalog, ledger, pauses_s=(0, 0))
    jobs = Jobs(JobRecords(ledger), commits)
    jobs.register(BULK, Kind("a bulk load"))
    jobs.register("COMPACT", Kind("a compaction", kept_ms=90 * 24 * 3600 * 1000))
    return jobs


def begin(jobs: Jobs, kind: str, table: Table, call: Call | None = None, **details: Any) -> AbstractContextManager[Job]:
    """A job of a request that waits for it."""
    return jobs.begin(kind, table, BulkProgress(), call or Call(), **details)


def compaction(records: JobRecords, id: str, table: TableName, uuid: str, at_ms: int, **values: Any) -> JobRecord:
    """A compaction that runs, noted."""
    plain: dict[str, Any] = {"owner": records.me, "requested_by": "auto", "created_ms": at_ms, "started_ms": at_ms}
    record = JobRecord(id, "COMPACT", table, uuid, **plain | values)
    assert records.begin(record)
    return record


def table_of(uuid: str) -> Table:
    """As much of a table as a job needs."""
    return cast(Table, SimpleNamespace(name=TableName("acme", "shop", uuid), uuid=uuid))
