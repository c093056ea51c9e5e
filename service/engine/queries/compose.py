"""The engine for queries that the settings ask for."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from service.engine.queries.child import Options
from service.engine.queries.engine import QueryEngine, SharedEngine
from service.engine.queries.process import QueryProcess
from service.engine.queries.spark import query_spark
from service.engine.session.conf import query_conf
from service.engine.session.engine import Engine
from service.host.memory import query_process
from service.metrics.metrics import Metrics
from service.settings import Settings


def query_engine(
    settings: Settings, jars: list[Path], java_options: Sequence[str], engine: Engine, *, serves_others: bool
) -> QueryEngine:
    """A process for queries, or else the engine of changes. By default, only a service that `serves_others` has one."""
    if not query_process(settings, serves_others=serves_others):
        return SharedEngine(engine)
    conf, limits = query_conf(settings, jars, java_options), settings.limits
    sessions, wait_s = settings.spark.sessions, limits.start_timeout_s
    options = Options(partial(query_spark, conf, sessions, wait_s), settings.log_level)
    return QueryProcess(options, sessions, wait_s, limits.tenant_share)


def read_metrics(metrics: Metrics, engine: Engine, queries: QueryEngine) -> None:
    """Have the metrics of both engines read."""
    metrics.read("firn_engine_up", lambda: engine.up)
    metrics.read("firn_engine_starts_total", lambda: engine.starts)
    metrics.read("firn_spark_session_wait_seconds", lambda: engine.longest_wait_s)
    metrics.read("firn_spark_sessions", lambda: {("idle",): engine.idle, ("busy",): engine.lent})
    metrics.read("firn_query_process_up", lambda: queries.up)
    metrics.read("firn_query_process_starts_total", lambda: queries.starts)
    metrics.read("firn_query_process_ends_total", lambda: queries.ends)
    metrics.read("firn_query_sessions", lambda: {("idle",): queries.idle, ("busy",): queries.lent})
    metrics.read("firn_query_session_wait_seconds", lambda: queries.longest_wait_s)
