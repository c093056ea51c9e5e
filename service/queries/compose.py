"""The parts of queries, put together."""

from service.catalog.tables import Catalog
from service.commits.holds import SnapshotHolds
from service.engine.queries.engine import QueryEngine
from service.guard.costs.limits import QueryLimits
from service.guard.policies import Policies
from service.metrics.metrics import Metrics
from service.queries.diff import Differences
from service.queries.streaming.streams import Streams
from service.settings import Settings


def query_parts(
    settings: Settings, engine: QueryEngine, catalog: Catalog, holds: SnapshotHolds, metrics: Metrics
) -> tuple[object, ...]:
    policies, streams = Policies(catalog), Streams(settings.limits, engine, holds, metrics)
    return policies, QueryLimits.of(settings.queries), streams, Differences(engine, catalog, holds, policies)
