"""Spark's configuration, made from the service's settings, without a JVM."""

import hashlib
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from service.engine.session import priorities
from service.host import cores
from service.model import postgres
from service.model.names import CATALOG
from service.settings import ROOT, Settings

_IMPLEMENTATIONS = {
    "sqlite": ("jdbc", None),
    "postgresql": ("jdbc", None),
    "rest": ("rest", None),
    "glue": (None, "org.apache.iceberg.aws.glue.GlueCatalog"),
}


def spool(home: Path, *, queries: bool = False) -> Path:
    """Spark's working folder, used only by the service with this home; that of its process for queries."""
    name = f"firn-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    return Path(tempfile.gettempdir()) / (f"{name}-queries" if queries else name)


def spools(home: Path) -> tuple[Path, Path]:
    return spool(home), spool(home, queries=True)


def spark_conf(settings: Settings, jars: list[Path], java_options: Sequence[str] = ()) -> dict[str, str]:
    """Spark's configuration; `spark.conf` of the settings takes precedence."""
    # A JVM that ran out of memory loses threads that others wait for, so it is replaced.
    options = ["-XX:+ExitOnOutOfMemoryError", f"-Dlog4j2.configurationFile={ROOT / 'config' / 'log4j2.properties'}"]
    options += [*priorities.java_options(settings.spark.master), *java_options]
    conf = {
        **_master(settings),
        "spark.app.name": "firn",
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.driver.extraJavaOptions": shlex.join(options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark describes each job's plan for its UI; the short form saves a tenth of a small job.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": f"{settings.home}/spark",
        # For shuffles, and streamed rows that were not read yet. Not beside the data, whose disk may be full.
        "spark.local.dir": str(spool(settings.home)),
        # Iceberg sets this only for the first session; compaction needs it in each.
        "spark.sql.catalog.default_rewrite_catalog": "org.apache.iceberg.spark.SparkRewriteTableCatalog",
        # A delete that only changes metadata supports no snapshot properties, so it could not be found by its batch id.
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.execution.datasources.v2.OptimizeMetadataOnlyDeleteFromTable"
        ),
        # One Arrow batch is one task, and one task writes one file per partition.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
        # A WRITE's task need not wait for all tasks of a compaction.
        "spark.scheduler.mode": "FAIR",
        # Every task costs time, which matters for small jobs.
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.shuffle.partitions": "4",
        # The files of a query's shuffles would otherwise stay until the JVM is short of heap.
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
        # Keeps the values of an IN out of the code that Spark generates, so that it is compiled once for all values.
        "spark.sql.optimizer.inSetConversionThreshold": "1",
        "spark.sql.optimizer.inSetSwitchThreshold": "0",
        # A SELECT must not read files by path, expand ${env:…} or run scripts.
        "spark.sql.variable.substitute": "false",
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.scripting.enabled": "false",
        # Hadoop's local file system forks a `chmod` for every file it creates; this one does not.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        **_catalog(settings),
    }
    if settings.spark.master.startswith("local"):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        # Broadcasts stay in this process; the usual 4 MiB block for each would be garbage to collect.
        conf |= {"spark.broadcast.blockSize": "256k", "spark.broadcast.compress": "false"}
        conf["spark.broadcast.checksum"] = "false"
        # The thread of a cancelled task may be stopped (see cancellation.py), which must not end the JVM.
        conf["spark.executor.killOnFatalError.depth"] = "0"
    else:
        # An executor whose cancelled tasks do not end is replaced.
        conf |= {"spark.task.reaper.enabled": "true", "spark.task.reaper.killTimeout": "10s"}
        conf["spark.jars"] = ",".join(str(jar) for jar in jars)
    return {**conf, **settings.spark.conf}


def query_conf(settings: Settings, jars: list[Path], java_options: Sequence[str] = ()) -> dict[str, str]:
    """The configuration of the process for queries; `spark.query_conf` of the settings takes precedence."""
    memory = settings.spark.query_memory
    return {
        **spark_conf(settings, jars, java_options),
        "spark.app.name": "firn-queries",
        "spark.local.dir": str(spool(settings.home, queries=True)),
        # A page of rows in JSON takes several times as much memory in the service, which must not be short of it.
        "spark.driver.maxResultSize": "512m",
        **settings.spark.conf,
        **({"spark.driver.memory": memory} if memory else {}),
        **settings.spark.query_conf,
    }


def _master(settings: Settings) -> dict[str, str]:
    """Where tasks run. Tasks cannot be preempted: with as many slots as cores, two queries that compute for a minute
    would keep every WRITE waiting for a slot. So there are more slots than queries can fill at a time, and the
    operating system shares the cores. Work is still divided by the number of cores."""
    if settings.spark.master != "local[*]":
        return {"spark.master": settings.spark.master}
    all_cores = cores.total()
    slots = 2 * all_cores + settings.spark.sessions
    return {
        "spark.master": f"local[{slots}]",
        "spark.default.parallelism": str(all_cores),
        # How often running tasks report how many rows they have written, for the progress of jobs.
        "spark.executor.heartbeatInterval": "2s",
    }


def _catalog(settings: Settings) -> dict[str, str]:
    kind, implementation = _IMPLEMENTATIONS[settings.catalog.type]
    warehouse = settings.catalog.warehouse or ""
    values = {
        "warehouse": warehouse,
        # A cached table hides the commits of other writers.
        "cache-enabled": "false",
        "unique-table-location": "true",
        **settings.catalog.properties,
    }
    if kind:
        values["type"] = kind
    if implementation:
        values["catalog-impl"] = implementation
    if warehouse.startswith("s3"):
        values.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
    if settings.catalog.type == "sqlite":
        values |= {"uri": f"jdbc:sqlite:{settings.home / 'catalog.db'}", "jdbc.busy_timeout": "30000"}
        values |= {"jdbc.synchronous": "FULL", "jdbc.journal_mode": "WAL", "jdbc.schema-version": "V1"}
    elif settings.catalog.type == "postgresql":
        values |= postgres.jdbc(settings.catalog.uri or "")
    elif settings.catalog.uri:
        values["uri"] = settings.catalog.uri
    name = f"spark.sql.catalog.{CATALOG}"
    return {name: "org.apache.iceberg.spark.SparkCatalog", **{f"{name}.{k}": v for k, v in values.items()}}
