"""The schedule that a table file's trigger asks for: a schedule of COMPACT for periods that are due."""

from dataclasses import dataclass

from service.catalog.tables import Table
from service.ingest.periods.choice import DUE
from service.jobs.schedules.schedules import SchedulePlan, Schedules
from service.jobs.schedules.times import ScheduleTiming
from service.model.identity.principal import LOCAL, Grant, Principal
from service.model.ingest.reserved import table_file_of, trigger_name
from service.model.ingest.table_file import Trigger

TASK = {"operation": "COMPACT", "period": DUE}


@dataclass(frozen=True)
class Triggers:
    """Keeps the schedules of ingestion tables as their table files say."""

    schedules: Schedules

    def follow(self, table: Table) -> str | None:
        """Create, replace or delete a table's schedule; returns its name, if it has one. It can be repeated."""
        config, name = table_file_of(table.properties), trigger_name(table.uuid)
        trigger = config.compaction.trigger if config is not None and config.compaction.enabled else Trigger()
        if trigger.schedule is None:
            self.schedules.delete(table.name.tenant, name)
            return None
        timing = ScheduleTiming(trigger.schedule, trigger.timezone or "UTC")
        place = table.name
        # Firn makes it, for this table only, whoever changed the table's file.
        owner = Principal("firn", (Grant("writer", place.tenant, place.namespace),), LOCAL.credential)
        plan = SchedulePlan(place.tenant, name, timing, "table", place.namespace, place.table, dict(TASK), owner=owner)
        self.schedules.store(self.schedules.planned(plan), replace=True)
        return name
