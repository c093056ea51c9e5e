"""The one model of long work: every job, of whatever kind, is a row of the ledger with one life cycle.

A new kind of long work needs nothing but this; docs/decisions/0016 has the whole story:

    class Ingestions:
        def __init__(self, jobs: Jobs, …) -> None:
            self._jobs = jobs
            # What CLEAN_ORPHANS calls it, and how to remove what it left, if its instance ended before it did.
            jobs.register("INGEST", Kind(writes="an ingestion", clean_up=self._clean_up))

        def ingest(self, table: Table, files: list[str], call: Call) -> Ingested:
            progress = call.progress(IngestProgress)
            with self._jobs.begin("INGEST", table, progress, call, folder=folder) as job:
                for file in files:
                    job.check()  # Cancelled, if somebody cancelled it
                    …
                    progress.files_done += 1  # everybody sees it, other instances within ten seconds
                return self._commit(table, before_commit=job.commit_gate)  # raises if it is not ours any more

        def _clean_up(self, left: JobRecord) -> dict[str, Any]:
            …  # remove what is below left.details["folder"] and in no snapshot
            return {"error": "the service ended while it ran"}  # added to the details

In the background: `background.start("INGEST", table, IngestProgress(), call, work)` returns the job's id, and runs
`work(call)` with the job's own call; `begin` finds the job by it. The end of the block ends the job: it is done, or
failed or cancelled with what was raised. A job in the background is ended by `background`, which has the response.
"""
