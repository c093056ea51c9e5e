"""The schedules of the service."""

from collections.abc import Callable, Mapping
from typing import Any

from service.catalog.tables import Catalog
from service.jobs.jobs import Jobs, Kind
from service.jobs.schedules.scheduler import Scheduler
from service.jobs.schedules.schedules import Schedules, skip_reason, tables_of
from service.ledger.jobs import JobRecord
from service.ledger.ledger import Ledger
from service.ledger.schedules import RUN, ScheduleRecords
from service.metrics.metrics import Metrics
from service.model.identity.principal import Principal
from service.model.times import now_ms
from service.settings import CompactionSettings


def compose_schedules(
    settings: CompactionSettings,
    catalog: Catalog,
    ledger: Ledger,
    jobs: Jobs,
    metrics: Metrics,
    of_owner: Callable[[str | None], Principal],
    shown: Callable[[JobRecord], Mapping[str, Any]],
) -> Schedules:
    """`of_owner` gives the rights that a creator has now, and `shown` how a run is described."""
    records = ScheduleRecords(ledger)
    # The scheduler takes over runs, and deletes them.
    jobs.register(RUN, Kind(kept_ms=None, is_resumed=True, shown=shown))
    windows = skip_reason(catalog, settings, now_ms)
    scheduler = Scheduler(
        *(records, tables_of(catalog), windows),
        metrics=metrics,
        principal_of=lambda schedule: of_owner(schedule.owner),
    )
    return Schedules(records, catalog, scheduler)
