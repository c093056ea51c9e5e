"""All commands, in the order in which help lists them.

A new group of commands is a module of `service/cli/commands` with its `COMMANDS`, its line here and its examples.
"""

from service.cli.command import Command
from service.cli.commands import (
    alter,
    compact,
    dynamic,
    edits,
    history,
    identities,
    ingest,
    jobs,
    layouts,
    load,
    namespaces,
    periods,
    queries,
    schedules,
    sql,
    system,
    tables,
)

GROUPS = {
    "table": "Create, describe and change tables.",
    "dynamic": "Keep the results of queries up to date as tables.",
    "backup": "List, restore and delete backups of tables.",
    "schedule": "Run compactions at set times.",
    "job": "Follow and cancel long-running work.",
    "namespace": "Group tables.",
    "key": "Create, list, rotate and revoke API keys.",
    "policy": "Show each role only some rows and columns of a table.",
    "profile": "Name the services and tenants that you use.",
}
MODULES = (
    queries,
    sql,
    load,
    edits,
    tables,
    ingest,
    periods,
    dynamic,
    compact,
    layouts,
    alter,
    history,
    schedules,
    jobs,
    namespaces,
    identities,
    system,
)
COMMANDS: tuple[Command, ...] = tuple(command for module in MODULES for command in module.COMMANDS)
