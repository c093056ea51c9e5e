"""All commands, in the order in which help lists them."""

from service.cli.command import Command
from service.cli.commands import (
    alter,
    compact,
    edits,
    history,
    jobs,
    layouts,
    load,
    namespaces,
    profiles,
    queries,
    schedules,
    sql,
    system,
    tables,
)

GROUPS = {
    "table": "Create, describe and change tables.",
    "backup": "List, restore and delete backups of tables.",
    "schedule": "Run compactions at set times.",
    "job": "Follow and cancel long-running work.",
    "namespace": "Group tables.",
    "profile": "Name the services and tenants that you use.",
}
COMMANDS: tuple[Command, ...] = (
    system.SERVE,
    *queries.COMMANDS,
    sql.COMMAND,
    load.COMMAND,
    *edits.COMMANDS,
    *tables.COMMANDS,
    compact.TABLE_COMMAND,
    *layouts.COMMANDS,
    alter.COMMAND,
    *history.COMMANDS,
    *schedules.COMMANDS,
    *jobs.COMMANDS,
    *namespaces.COMMANDS,
    *profiles.COMMANDS,
    compact.COMMAND,
    system.STOP,
    *system.COMMANDS,
)
