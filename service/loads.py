"""What becomes of a bulk load once its body is staged: the commit, the job that tells of it, the key, the answer."""

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from pydantic import Field

from handlers.write import Batch, WriteMetadata, WriteResult
from service import envelope
from service.bulk.bulk import Load, Loaded
from service.commits.ask import Ask, Key
from service.commits.keys import Claim
from service.errors import Cancelled, FirnError, KeyBusy
from service.jobs.job import BULK
from service.operation import Result
from service.router import Answer, Router
from service.upkeep.upkeep import NOT_CHECKED

log = logging.getLogger("firn.bulk")
RECORDS, JOB = "/tables/{tenant}/{namespace}/{table}/records", "/jobs/{id}"


class Accepted(Result):
    job_id: str = Field(description="what stands under /jobs/{id}")
    status_url: str = Field(description="the path of the same")


@dataclass(frozen=True)
class Asked:
    """Who asked for a load, and how it is to be answered."""

    request_id: str
    started: float
    in_background: bool
    key: Key | None

    @property
    def status(self) -> int:
        return 202 if self.in_background else 200

    def written(self, loaded: Loaded, request_id: str) -> bytes:
        """The body of a success, which is a WRITE's, under the id that the commit is noted under."""
        batch = Batch(requests=1, records=loaded.records) if loaded.records else None
        result = WriteResult(
            records_written=loaded.records,
            compaction_recommended=loaded.check.compaction_recommended,
            small_files_count=loaded.check.small_files_count,
            metadata=WriteMetadata(snapshot_id=loaded.snapshot_id, batch=batch),
        )
        return self._rendered(result, request_id)

    def accepted(self, job_id: str) -> bytes:
        return self._rendered(Accepted(job_id=job_id, status_url=JOB.format(id=job_id)), self.request_id)

    def _rendered(self, result: Result, request_id: str) -> bytes:
        return envelope.success(result, request_id, round((time.monotonic() - self.started) * 1000))


class Loads:
    """Answers for staged loads."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._keys = router.keys
        self._bulk = router.context.bulk
        self._jobs = router.context.jobs
        self._lock = threading.Lock()
        # The answers to keyed requests whose jobs are under way.
        self._accepted: dict[str, bytes] = {}

    def answer(self, load: Load, asked: Asked, ended: Callable[[], None]) -> "Future[Answer]":
        """Commit a staged load. The load is ours now, and `ended` is called once, when all is over.

        The future always ends in an answer: at once where it is a job's id.
        """
        try:
            if asked.key is None:
                return self._begin(load, asked, Ask(asked.request_id), ended)
            return self._once(load, asked, asked.key, ended)
        except BaseException as e:
            self._give_up(load, ended)
            return _done(self._failed(e, asked.request_id))

    def _once(self, load: Load, asked: Asked, key: Key, ended: Callable[[], None]) -> "Future[Answer]":
        with self._lock:
            claim = self._keys.claim(key, asked.request_id)
            if claim.elsewhere:
                return self._wait(load, asked, key, ended)
            if claim.under_way is None and claim.answer is None:
                try:
                    return self._begin(load, asked, claim.ask, ended)
                except BaseException as e:
                    self._keys.release(key, self._failed(e, asked.request_id))
                    raise
            accepted = self._accepted.get(key.id)
        self._give_up(load, ended)
        if claim.under_way is not None:
            return _done(Answer(202, accepted)) if accepted else claim.under_way
        answer = Answer(asked.status, claim.answer or b"")
        self._keys.release(key, answer)
        return _done(answer)

    def _wait(self, load: Load, asked: Asked, key: Key, ended: Callable[[], None]) -> "Future[Answer]":
        """Answer as another instance does that works on a load with this key; begin where that comes to nothing."""
        answer: Future[Answer] = Future()

        def begin(ask: Ask) -> None:
            try:
                self._begin(load, asked, ask, ended).add_done_callback(lambda done: answer.set_result(done.result()))
            except BaseException as e:
                give_up(self._failed(e, asked.request_id))

        def give_up(outcome: Answer) -> None:
            self._give_up(load, ended)
            self._keys.release(key, outcome)
            answer.set_result(outcome)

        def look_again(found: "Claim[Answer] | FirnError") -> None:
            if isinstance(found, FirnError):
                give_up(self._failed(found, asked.request_id))
            elif found.answer is not None:
                give_up(Answer(asked.status, found.answer))
            else:
                begin(found.ask)

        self._keys.wait(key, asked.request_id, look_again)
        return answer

    def _begin(self, load: Load, asked: Asked, ask: Ask, ended: Callable[[], None]) -> "Future[Answer]":
        job_id, answer = None, Future[Answer]()
        if asked.in_background:
            promise = asked.written(Loaded(load.records, None, NOT_CHECKED), asked.request_id)
            job_id = self._jobs.begin(BULK, load.table, load.progress, promise, load.running)
            answer = _done(Answer(202, asked.accepted(job_id)))
            if ask.key:
                self._accepted[ask.key.id] = answer.result().body

        def tries(batch: str) -> None:
            if job_id is not None:
                self._jobs.tries(job_id, batch)

        def finish(done: "Future[Loaded]") -> None:
            try:
                outcome = self._outcome(done, asked, ask)
                self._end_job(job_id, outcome)
                self._end_key(ask.key, outcome, answer.result().body if job_id else outcome.body)
                if job_id is None:
                    answer.set_result(outcome)
            finally:
                ended()

        try:
            work = self._bulk.finish(load, ask, tries)
        except BaseException as e:
            self._end_job(job_id, self._failed(e, asked.request_id))
            self._accepted.pop(ask.key.id if ask.key else "", None)
            raise
        work.add_done_callback(finish)
        return answer

    def _outcome(self, done: "Future[Loaded]", asked: Asked, ask: Ask) -> Answer:
        failure = done.exception()
        if failure is not None:
            return self._failed(failure, asked.request_id)
        body = asked.written(done.result(), self._keys.id_of(ask))
        log.info("%s bulk WRITE ok: %d records", asked.request_id, done.result().records)
        return Answer(200, body)

    def _end_job(self, job_id: str | None, outcome: Answer) -> None:
        if job_id is None:
            return
        if outcome.status == 200:
            self._jobs.done(job_id, outcome.body)
            return
        error = json.loads(outcome.body)["error"]
        end = self._jobs.cancelled if error["code"] == Cancelled.code else self._jobs.failed
        end(job_id, json.dumps(error).encode())

    def _end_key(self, key: Key | None, outcome: Answer, body: bytes) -> None:
        """Keep a success for whoever sends the same again."""
        if key is None:
            return
        if outcome.status == 200:
            try:
                self._keys.store(key, body)
            except KeyBusy as e:  # what it says has happened all the same
                log.error("the answer under key %s could not be stored: %s", key.id, e.message)
        self._accepted.pop(key.id, None)
        self._keys.release(key, outcome)

    def _give_up(self, load: Load, ended: Callable[[], None]) -> None:
        try:
            load.close()
        finally:
            ended()

    def _failed(self, failure: BaseException, request_id: str) -> Answer:
        if not isinstance(failure, FirnError):
            return self._router.defect(request_id, failure)
        log.info("%s bulk WRITE refused: %s: %s", request_id, failure.code, failure.message)
        return failed(failure, request_id)


def failed(error: FirnError, request_id: str) -> Answer:
    wait = 1 if error.status in (429, 503) else None
    return Answer(error.status, envelope.failure(error, request_id), wait, code=error.code)


def _done(answer: Answer) -> "Future[Answer]":
    future: Future[Answer] = Future()
    future.set_result(answer)
    return future
