"""The composition root: settings → engine, catalog, ledger → pipeline → HTTP. Nothing is built at import."""

import asyncio
import itertools
import json
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from handlers import discover
from service import VERSION
from service.catalog.connect import connect
from service.catalog.files.staging import remove_leftovers
from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds, snapshots_awaiting_response
from service.commits.small_files import SmallFileChecks, WriteCounts
from service.dynamic.compose import dynamic_parts, needed_snapshots
from service.dynamic.worker import DynamicWorker
from service.edits.edits import Edits
from service.edits.replayed import ReplayedRows
from service.edits.restore import Restores
from service.edits.rollback import Rollbacks
from service.edits.undo import Undos
from service.engine.queries.compose import query_engine, read_metrics
from service.engine.queries.engine import QueryEngine, QueryState, SharedEngine
from service.engine.session.conf import spark_conf, spool
from service.engine.session.engine import Engine
from service.errors import FirnError
from service.fairness.crowd import Crowd
from service.guard.policies import Policies
from service.host import class_archive, cores, jars, presence, process_locks
from service.host.logs import configure_logging
from service.identity.compose import compose_identities, identity_parts
from service.ingest.compose import ingest_parts
from service.ingest.ingests import Ingests
from service.ingest.tasks.watch import Watcher
from service.jobs.background import Background
from service.jobs.jobs import Jobs
from service.jobs.schedules.compose import compose_schedules
from service.jobs.schedules.schedules import Schedules
from service.ledger.ingestions import IngestionRecords
from service.ledger.jobs import JobRecords
from service.ledger.ledger import Ledger, delete_old_records, open_ledger
from service.ledger.table_records import TableRecords
from service.ledger.undo_records import UndoRecords
from service.maintenance.advise.advice import Adviser
from service.maintenance.advise.auto import Auto
from service.maintenance.advise.query_log import QueryLog
from service.maintenance.compact.compaction import Compactions
from service.maintenance.compose import automatic_compaction
from service.maintenance.expire.expirer import Expirer, built_on_by_other_instances
from service.maintenance.expire.expiry import Expiry
from service.maintenance.orphans.orphans import Orphans
from service.maintenance.repartition.estimate import LayoutEstimates
from service.maintenance.repartition.repartition import Repartitions
from service.metrics.metrics import Metrics
from service.model import wire
from service.model.call import Call
from service.operations.bulk_upserts import BulkUpserts
from service.operations.operation import Parts
from service.operations.schedule_results import shown_run
from service.operations.shared_edits import RowEdits
from service.pipeline.pipeline import Pipeline
from service.pipeline.warm_up import warm_up
from service.queries.compose import query_parts
from service.settings import ROOT, Settings, SettingsError, load
from service.tables.life import TableLifecycle
from service.tables.reinitialise import Reinitialisations
from service.writes.bulk.load import Bulk
from service.writes.writes import Writes

log = logging.getLogger("firn")
_CHECK_EVERY_S = 10
_RECOVER_EVERY = 360  # checks
_REHEARSAL_STOP_S = 120


class App:
    """The whole service: started in the background, used through its pipeline, stopped once."""

    def __init__(
        self,
        settings: Settings,
        jar_paths: list[Path],
        java_options: class_archive.Options | None = None,
        *,
        only_refreshes: bool = False,
        serves_others: bool = False,
    ) -> None:
        """Without `java_options` those that use the class archive; without jars Spark cannot start. With
        `only_refreshes`, it does nothing by itself but refresh dynamic tables."""
        settings.home.mkdir(parents=True, exist_ok=True)
        if java_options is None:
            java_options = class_archive.java_options(jar_paths, os.environ) if jar_paths else ()
        self.settings, self._only_refreshes = settings, only_refreshes
        self._lock = process_locks.acquire(settings.home)
        try:
            catalog = connect(settings)
            ledger = open_ledger(settings)
        except FirnError as e:
            raise SettingsError(f"{e.message} (see FIRN_CATALOG__…, FIRN_LEDGER__URL and FIRN_HOME)") from e
        self.engine = Engine(
            spark_conf(settings, jar_paths, java_options),
            settings.spark.sessions,
            start_wait_s=settings.limits.start_timeout_s,
            held=(self._lock.fileno(),),
            tenant_share=settings.limits.tenant_share,
        )
        self.queries = query_engine(settings, jar_paths, java_options, self.engine, serves_others=serves_others)
        self.parts = compose(settings, self.engine, catalog, ledger, self.queries)
        self.pipeline = Pipeline(discover(), self.parts, settings.limits)
        self.parts[Schedules].open(self.pipeline)
        self._warm, self._stopping = threading.Event(), threading.Event()
        self.parts[Metrics].read("firn_ready", lambda: self.ready)

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @property
    def state(self) -> str:
        if self._stopping.is_set():
            return "stopping"
        if not (self._warm.is_set() and self.engine.up):
            return "starting"
        stalled_s = max(self.engine.stalled_s, self.queries.stalled_s)
        return "stalled" if stalled_s > self.settings.limits.stalled_after_s else "ready"

    @property
    def query_process(self) -> QueryState:
        return self.queries.state

    @property
    def busy(self) -> bool:
        """Whether a request, a job, a refresh or a bulk load is in progress."""
        works = self.parts[Background].busy or self.parts[DynamicWorker].busy
        return self.pipeline.busy or works or self.parts[Bulk].under_way > 0

    def start(self) -> None:
        """Return at once; Spark starts and warms up in the background."""
        threading.Thread(target=self._run, name="firn-start", daemon=True).start()

    def _run(self) -> None:
        started = time.monotonic()
        for step in (self.recover_previous, self._start_engine, self._warm_up):
            self._retry(step)
        if not self._stopping.is_set():
            self._warm.set()
            self.parts[DynamicWorker].start()
            if not self._only_refreshes:
                self.parts[Schedules].scheduler.start()
                self.parts[Watcher].start()
            log.info("ready after %.1f s", time.monotonic() - started)
        if not self._only_refreshes:
            threading.Thread(target=self.parts[Auto].run, args=(self._stopping,), name="firn-auto", daemon=True).start()
        self._check_regularly()

    def _retry(self, step: Callable[[], None]) -> None:
        """Repeat a step of the start until it succeeds."""
        pauses = itertools.chain((1, 5, 15), itertools.repeat(60))
        while not self._stopping.is_set():
            try:
                return step()
            except Exception as e:
                pause = next(pauses)
                if not self._stopping.wait(0):
                    unforeseen = not isinstance(e, FirnError)
                    log.error("start-up failed, trying again in %d s: %s", pause, e, exc_info=unforeseen)
                self._stopping.wait(pause)

    def _check_regularly(self) -> None:
        """Resolve changes whose outcome is unknown; once an hour also recover the work of instances that are gone."""
        for check in itertools.count(1):
            if self._stopping.wait(_CHECK_EVERY_S):
                return
            try:
                self.parts[Commits].batches.resolve()
                self.parts[Jobs].look()
                if check % _RECOVER_EVERY == 0:
                    delete_old_records(self.parts[Ledger], self.settings)
                    self.parts[Commits].batches.recover()
                    self._recover_with_spark()
            except Exception as e:  # the next check tries again; without this handler it would be the last one
                log.error("recovery from the ledger failed: %s", e, exc_info=not isinstance(e, FirnError))

    def recover_previous(self) -> None:
        """Finish and remove what earlier processes left. Only before Spark starts, when all of it is theirs."""
        left = self.parts[Commits].batches.recover()
        if left:
            log.warning("found the outcome of %d changes that an earlier process left unfinished", left)
        if self.settings.catalog.type == "sqlite":  # a shared catalog may hold those of another instance
            remove_leftovers(self.parts[Catalog])
        self.parts[Jobs].settle()
        self.parts[Ingests].remove_leftovers()

    def _start_engine(self) -> None:
        if not self.engine.up:
            self.engine.start()

    def _recover_with_spark(self) -> None:
        self.parts[Jobs].recover()
        self.parts[TableLifecycle].remove_overdue()

    def _warm_up(self) -> None:
        try:
            self._recover_with_spark()
            if self.settings.spark.warm_up:
                warm_up(self.pipeline, self.engine, self.queries, self.parts[Catalog])
        finally:
            self.queries.start()

    def rehearse(self) -> None:
        """Start Spark, warm it up and stop it. The JVM gets time to stop: it writes the class archive then."""
        try:
            self._start_engine()
            self._warm_up()
            self.engine.stop(_REHEARSAL_STOP_S)
        finally:
            self.stop()

    def stop(self) -> None:
        """Refuse new requests, finish those in progress, stop Spark. It takes less than 30 s in any case."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        presence.withdraw(self.settings.home)
        self.parts[Background].stop()
        scheduler = self.parts[Schedules].scheduler
        scheduler.stop()
        self.parts[Watcher].stop()
        self.parts[DynamicWorker].stop()
        try:
            if not self.pipeline.drain(self.settings.limits.stop_timeout_s):
                log.warning("requests still ran after %d s; cancelling them", self.settings.limits.stop_timeout_s)
                self.parts[Jobs].stop()
                self.queries.stop(1)
                self.engine.cancel_all(1)
                self.pipeline.drain(1)
            self.pipeline.close()
            self.parts[Background].close(1)
            scheduler.close(2)
            self.parts[Watcher].close(2)
            self.parts[DynamicWorker].close(2)
            self.parts[Writes].close()
            self.parts[Commits].batches.close()
            self.parts[Expiry].close()
        finally:
            self.queries.stop(2)
            self.engine.stop(2)
            self.parts[Ledger].close()
            self._lock.close()


def compose(
    settings: Settings, engine: Engine, catalog: Catalog, ledger: Ledger, queries: QueryEngine | None = None
) -> Parts:
    """The parts of the service. A test can pass another engine, catalog or ledger."""
    queries, iceberg, limits = queries or SharedEngine(engine), settings.iceberg, settings.limits
    metrics, holds, query_log = Metrics(settings.metrics.tables), SnapshotHolds(), QueryLog()
    identities, commits = compose_identities(settings, ledger), Commits(catalog, ledger, metrics=metrics)
    small_files, crowd = SmallFileChecks(iceberg, catalog, WriteCounts(ledger), metrics), Crowd(cores.usable())
    jobs, replayed = Jobs(JobRecords(ledger), commits, metrics), ReplayedRows(IngestionRecords(ledger))
    edits = Edits(engine, commits, Policies(catalog), holds, iceberg.edits)
    backups, restores = Backups(iceberg.edits, catalog, commits), Restores(engine, commits, holds)
    writes = Writes(settings, engine, catalog, commits, small_files, metrics, holds, crowd=crowd)
    bulk = Bulk(settings.limits, engine, catalog, commits, small_files, jobs)
    awaited, built_on = partial(snapshots_awaiting_response, ledger), partial(built_on_by_other_instances, jobs)
    keepers = (holds.keeps, awaited, built_on, needed_snapshots(settings, ledger))
    undos = Undos(iceberg.edits, engine, commits, UndoRecords(ledger), holds)
    expirer = Expirer(iceberg.snapshots, engine, catalog, commits, keepers, undos.keeps)
    expiry = Expiry(expirer.by_policy)
    schedules = compose_schedules(iceberg.compaction, catalog, ledger, jobs, metrics, identities.of_owner, shown_run)
    commits.when_committed(expiry.after_commit)
    adviser = Adviser(iceberg, catalog, jobs.records, query_log, metrics)
    compactions = Compactions(
        engine, catalog, commits, small_files, holds, expirer, jobs, metrics, predict=adviser.predict
    )
    auto = automatic_compaction(
        *(engine, catalog, adviser, query_log, jobs.records, compactions, lambda: writes.waiting),
        every_s=iceberg.compaction.auto_interval_s,
    )
    commits.when_committed(auto.changed)
    read_metrics(metrics, engine, queries)
    metrics.read("firn_build_info", lambda: {(VERSION,): 1})
    metrics.read("firn_bulk_loads", lambda: bulk.under_way)
    return Parts(
        {Engine: engine, QueryEngine: queries, Catalog: catalog, Ledger: ledger},
        *identity_parts(settings, ledger, identities),
        *(settings, iceberg, metrics, commits, holds, jobs, jobs.records, small_files, query_log, schedules, crowd),
        *query_parts(settings, queries, catalog, holds, metrics),
        Background(jobs, limits.maintenance_threads, limits.pending_maintenance, limits.tenant_share),
        *(writes, bulk, RowEdits(commits, backups, edits, small_files, writes)),
        *(edits, BulkUpserts(engine, edits, jobs), replayed, undos),
        *(backups, restores, Rollbacks(restores, holds, replayed), Reinitialisations(engine, commits, holds)),
        TableLifecycle(iceberg.dropped_tables, catalog, commits, TableRecords(ledger), metrics),
        *(expirer, expiry, adviser, compactions, auto, LayoutEstimates(engine, small_files, holds)),
        *ingest_parts(settings, engine, catalog, ledger, commits, jobs, holds, schedules),
        *dynamic_parts(settings, engine, queries, catalog, ledger, commits, jobs, holds, metrics, identities),
        Repartitions(engine, catalog, commits, small_files, holds, backups, jobs),
        # Other instances, and other users of a shared catalog, are not visible here.
        Orphans(engine, catalog, commits, ledger, jobs, alone=settings.catalog.type == "sqlite"),
    )


def build(settings: Settings | None = None, jar_paths: list[Path] | None = None) -> App:
    """An App with the settings of the environment and checked jars."""
    found = jar_paths or jars.locate(ROOT / "config" / "jars.lock", jars.cache_dir(os.environ))
    return App(settings or load(os.environ), found)


def rehearse(jar_paths: list[Path], java_options: class_archive.Options) -> None:
    """Start and stop the service once, with a temporary home."""
    with tempfile.TemporaryDirectory(prefix="firn-rehearsal-") as home:
        settings = load({"FIRN_HOME": home})
        try:
            App(settings, jar_paths, java_options).rehearse()
        finally:
            shutil.rmtree(spool(settings.home), ignore_errors=True)


def serve(settings: Settings, jar_paths: list[Path], log_file: Path | None = None) -> int:
    """Serve until a signal stops the service; returns the exit code.

    With `log_file`, to which its output goes, it serves the commands of this user in the background: it has no port,
    and stops when it has been idle for a while.
    """
    from service.api import http  # only this needs FastAPI and uvicorn

    configure_logging(settings.log_level)
    background = log_file is not None
    app = App(settings.for_commands() if background else settings, jar_paths, serves_others=not background)
    try:
        local = presence.announce(settings, background=background, log=str(log_file) if background else None)
    except SettingsError as e:
        if background:
            raise
        log.warning("commands will not find this service without --url: %s", e)
        local = None
    code = http.serve(app, local, settings.background.idle_timeout_s if background else None)
    if app.busy:  # a thread that hangs would keep the process
        logging.shutdown()
        os._exit(code)
    return code


def work(settings: Settings, jar_paths: list[Path]) -> int:
    """Refresh dynamic tables until a signal comes; returns the exit code."""
    configure_logging(settings.log_level)
    dynamic = settings.dynamic.model_copy(update={"worker": True})
    spark = settings.spark.model_copy(update={"processes": "1"})  # nobody sends it queries
    app = App(settings.model_copy(update={"dynamic": dynamic, "spark": spark}), jar_paths, only_refreshes=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    app.start()
    ended.wait()
    app.stop()
    return 0


def openapi() -> str:
    """The OpenAPI document as JSON text, without starting the service."""
    from service.api import http

    return json.dumps(http.declare(discover()).openapi(), indent=2)


_starting = threading.Lock()
_for_events: App | None = None


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """The entry point for a function runtime. Spark starts with the first event and stays for the next."""
    from service.api import events

    request_id = str(getattr(context, "aws_request_id", "") or uuid.uuid4().hex)
    # A runtime has already parsed the event with floats; their shortest text is what was sent.
    text = json.dumps(event, default=str)
    return cast(dict[str, Any], wire.parse(asyncio.run(events.respond(text, _app().pipeline, Call(request_id)))))


def _app() -> App:
    global _for_events
    with _starting:
        if _for_events is None:
            _for_events = build()
            _for_events.start()
        return _for_events
