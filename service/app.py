"""The composition root: settings → engine, catalog, ledger → router → HTTP. Nothing is built at import."""

import fcntl
import importlib
import itertools
import json
import logging
import os
import pkgutil
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import handlers
from service import classes, jars, presence, warm
from service.catalog.connect import connect
from service.catalog.staging import sweep
from service.context import compose
from service.engine.conf import spark_conf, spool
from service.engine.engine import Engine
from service.errors import FirnError
from service.ledger.ledger import open_ledger, tidy
from service.operation import Operation
from service.router import Router
from service.settings import ROOT, HomeInUse, Settings, SettingsError, load

log = logging.getLogger("firn")
_LOOK_EVERY_S = 10
_TIDY_EVERY = 360  # looks
_REHEARSAL_S = 120


class App:
    """The service, whole: started in the background, asked through its router, stopped once."""

    def __init__(self, settings: Settings, jar_paths: list[Path], java_options: classes.Options | None = None) -> None:
        """With jars, since without them there is no Spark; `java_options` instead of those that make a start quick."""
        settings.home.mkdir(parents=True, exist_ok=True)
        if java_options is None:
            java_options = classes.to_read(jar_paths, os.environ) if jar_paths else ()
        self.settings = settings
        self._lock = _own(settings.home)
        try:
            catalog = connect(settings)
            ledger = open_ledger(settings)
        except FirnError as e:
            raise SettingsError(f"{e.message} (FIRN_CATALOG__…, FIRN_LEDGER__URL and FIRN_HOME say where it is)") from e
        self.engine = Engine(
            spark_conf(settings, jar_paths, java_options),
            settings.spark.sessions,
            start_wait_s=settings.limits.start_wait_s,
            held=(self._lock.fileno(),),
        )
        self.context = compose(settings, self.engine, catalog, ledger)
        self.router = Router(discover(), self.context)
        self.context.schedules.open(self.router)
        self._warm = threading.Event()
        self._stopping = threading.Event()
        self.context.metrics.read("firn_ready", lambda: self.ready)

    @property
    def ready(self) -> bool:
        return self._warm.is_set() and self.engine.up and not self._stopping.is_set()

    @property
    def state(self) -> str:
        if self._stopping.is_set():
            return "stopping"
        return "ready" if self.ready else "starting"

    @property
    def busy(self) -> bool:
        """Whether anything that somebody waits for is under way."""
        return self.router.busy or self.context.background.busy or self.context.bulk.under_way > 0

    def start(self) -> None:
        """Return at once; Spark starts and warms in the background."""
        threading.Thread(target=self._live, name="firn-start", daemon=True).start()

    def _live(self) -> None:
        self._start()
        threading.Thread(target=self.context.auto.run, args=(self._stopping,), name="firn-auto", daemon=True).start()
        self._tidy()

    def _start(self) -> None:
        started = time.monotonic()
        for step in (self.look_back, self._start_engine, self._warm_up):
            self._until_done(step)
        if not self._stopping.is_set():
            self._warm.set()
            self.context.schedules.scheduler.start()
            log.info("ready after %.1f s", time.monotonic() - started)

    def _until_done(self, step: Callable[[], None]) -> None:
        """Take a step of the start, again and again until it succeeds."""
        pauses = itertools.chain((1, 5, 15), itertools.repeat(60))
        while not self._stopping.is_set():
            try:
                return step()
            except Exception as e:
                pause = next(pauses)
                if not self._stopping.wait(0):
                    log.error(
                        "start-up failed, trying again in %d s: %s", pause, e, exc_info=not isinstance(e, FirnError)
                    )
                self._stopping.wait(pause)

    def _tidy(self) -> None:
        """Look for changes whose end could not be noted; now and then finish those of instances that are gone, too."""
        for look in itertools.count(1):
            if self._stopping.wait(_LOOK_EVERY_S):
                return
            try:
                self.context.commits.find_out()
                self.context.jobs.look_for_cancels()
                if look % _TIDY_EVERY:
                    continue
                tidy(self.context.ledger, self.settings)
                self.context.commits.recover()
                self.context.jobs.recover()
                self.context.compactions.recover()
                self.context.repartitions.recover()
                self.context.life.remove_overdue()
            except Exception as e:  # it is tried again: without an end, nothing would be looked after any more
                log.error("the ledger's notes could not be tidied: %s", e, exc_info=not isinstance(e, FirnError))

    def look_back(self) -> None:
        """Finish and remove what earlier processes left; only before Spark is there, so that nothing of ours is met."""
        left = self.context.commits.recover()
        if left:
            log.warning("looked up %d changes that an earlier stop left unfinished", left)
        if self.settings.catalog.type == "sqlite":  # a shared catalog may hold another instance's
            warm.leftovers(self.context.catalog)
            sweep(self.context.catalog)
        self.context.jobs.recover()

    def _start_engine(self) -> None:
        if not self.engine.up:
            self.engine.start()

    def _warm_up(self) -> None:
        self.context.compactions.recover()
        self.context.repartitions.recover()
        self.context.life.remove_overdue()
        if self.settings.spark.warm_up:
            warm.warm(self.router, self.engine, self.context.catalog)

    def rehearse(self) -> None:
        """Start and warm Spark, and end it with patience: as it ends, its JVM may have something to write."""
        try:
            self._start_engine()
            self._warm_up()
            self.engine.stop(_REHEARSAL_S)
        finally:
            self.stop()

    def stop(self) -> None:
        """Refuse new requests, finish those under way, end Spark; takes less than 30 s, whatever hangs."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        presence.withdraw(self.settings.home)
        self.context.background.stop()
        scheduler = self.context.schedules.scheduler
        scheduler.stop()
        try:
            if not self.router.drain(self.settings.limits.stop_wait_s):
                log.warning("requests still ran after %d s; cancelling them", self.settings.limits.stop_wait_s)
                self.context.jobs.stop()
                self.engine.cancel_all(1)
                self.router.drain(1)
            self.router.close()
            self.context.background.close(1)
            scheduler.close(2)
            self.context.writes.close()
            self.context.expiry.close()
        finally:
            self.engine.stop(2)
            self.context.ledger.close()
            self._lock.close()


def build(settings: Settings | None = None, jar_paths: list[Path] | None = None) -> App:
    """An App from the environment's settings, its jars checked."""
    settings = settings or load(os.environ)
    found = jar_paths or jars.locate(ROOT / "config" / "jars.lock", jars.cache_dir(os.environ))
    return App(settings, found)


def rehearse(jar_paths: list[Path], java_options: classes.Options) -> None:
    """A start, with a home of its own that goes with it."""
    with tempfile.TemporaryDirectory(prefix="firn-rehearsal-") as home:
        settings = load({"FIRN_HOME": home})
        try:
            App(settings, jar_paths, java_options).rehearse()
        finally:
            shutil.rmtree(spool(settings.home), ignore_errors=True)


def discover() -> list[Operation]:
    """Every handler module's one operation; a module with none or two, or a name used twice, stops start-up."""
    found: dict[str, Operation] = {}
    for module_info in pkgutil.iter_modules(handlers.__path__):
        module = importlib.import_module(f"handlers.{module_info.name}")
        declared = [value for value in vars(module).values() if isinstance(value, Operation)]
        if len(declared) != 1:
            raise RuntimeError(
                f"handlers/{module_info.name}.py declares {len(declared)} operations; it must declare one"
            )
        name = declared[0].name
        if name in found or name.lower() != module_info.name:
            raise RuntimeError(f"handlers/{module_info.name}.py declares {name}; file and operation must match, once")
        found[name] = declared[0]
    return list(found.values())


def _own(home: Path) -> IO[str]:
    """Be the one process that owns this home: two would not see each other's order of changes.

    The JVM shares the lock. If its process was killed, it may be finishing a commit for a moment longer.
    """
    lock = (home / "lock").open("a+")
    deadline = time.monotonic() + 15
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as e:
            lock.seek(0)
            owner = lock.read().strip()
            if (owner.isdigit() and _lives(int(owner))) or time.monotonic() > deadline:
                said = f"process {owner}" if owner else "another process"
                raise HomeInUse(
                    f"FIRN_HOME {home} is in use by {said}; stop it (`firn stop`), or set FIRN_HOME to another folder"
                ) from e
            time.sleep(0.1)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def configure_logging(settings: Settings) -> None:
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s  %(message)s", force=True
    )
    for noisy in ("py4j", "uvicorn.access", "pyiceberg", "botocore", "boto3", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # PySpark's own report of every refused query, whole, as JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def serve(settings: Settings, jar_paths: list[Path], log_file: Path | None = None) -> int:
    """Serve until told to stop; the exit code.

    With `log_file`, which is where its output goes, it serves commands of this user in the background: it has no port,
    and ends when nobody has asked for anything for a while.
    """
    from service import http  # FastAPI and uvicorn are needed by this door only

    configure_logging(settings)
    background = log_file is not None
    app = App(settings.for_commands() if background else settings, jar_paths)
    try:
        local = presence.announce(settings, background=background, log=str(log_file) if background else None)
    except SettingsError as e:
        if background:
            raise
        log.warning("commands will not find this service without --url: %s", e)
        local = None
    code = http.serve(app, local, settings.background.idle_s if background else None)
    if app.busy:  # a thread that never came back would keep the process
        logging.shutdown()
        os._exit(code)
    return code


def openapi() -> str:
    """The service's description for tools, without starting it."""
    from service.openapi import document

    return json.dumps(document(discover()), indent=2)
