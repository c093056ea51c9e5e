"""What a bulk load does once its body is staged: it commits, or starts the job that commits."""

from pydantic import Field

from handlers.write import Batch, WriteMetadata, WriteResult
from service.api.jobs import JOB
from service.commits.small_files import NOT_CHECKED
from service.errors import Cancelled
from service.jobs.job import BULK, Job
from service.jobs.jobs import Jobs, error_json
from service.model.call import Call, IdempotencyKey
from service.operations.operation import Result
from service.pipeline.work import Work
from service.writes.bulk.load import Bulk, Load, Loaded


class AcceptedResult(Result):
    job_id: str = Field(description="the id for /jobs/{id}")
    status_url: str = Field(description="the path of the job")


class Loads:
    def __init__(self, bulk: Bulk, jobs: Jobs) -> None:
        self._bulk = bulk
        self._jobs = jobs

    def work(self, load: Load, key: IdempotencyKey | None, *, in_background: bool) -> Work:
        """The work of a staged load, for the pipeline. In the background, its idempotency key stands for the job."""
        tenant = load.table.name.tenant
        if in_background:
            return Work("WRITE", tenant, "inline", lambda call: self._accept(load, call), key, 202)
        return Work("WRITE", tenant, "bulk", lambda call: _written(self._bulk.finish(load, call)), key)

    def _accept(self, load: Load, call: Call) -> AcceptedResult:
        promise = call.respond(_written(Loaded(load.records, None, NOT_CHECKED)))
        job = self._jobs.accept(BULK, load.table, load.progress, promise, call.without_key(load.progress))
        try:
            self._bulk.start(load, lambda: self._finish(load, job))
        except BaseException as e:
            self._jobs.failed(job, error_json(job, e))
            raise
        return AcceptedResult(job_id=job.id, status_url=JOB.format(id=job.id))

    def _finish(self, load: Load, job: Job) -> None:
        try:
            loaded = self._bulk.finish(load, job.call)
            self._jobs.done(job, job.call.respond(_written(loaded)))
        except BaseException as e:
            end = self._jobs.cancelled if isinstance(e, Cancelled) else self._jobs.failed
            end(job, error_json(job, e))


def _written(loaded: Loaded) -> WriteResult:
    batch = Batch(requests=1, records=loaded.records) if loaded.records else None
    return WriteResult(
        records_written=loaded.records,
        compaction_recommended=loaded.check.compaction_recommended,
        small_files_count=loaded.check.small_files_count,
        metadata=WriteMetadata(snapshot_id=loaded.snapshot_id, batch=batch),
    )
