"""Every command there is, in the order in which help lists them."""

from service.cli import alter, compact, create, jobs, layouts, past, queries, schedules, system, tables
from service.cli.command import Command

GROUPS = {
    "table": "Create, describe and change tables.",
    "backup": "List, restore and delete backups of tables.",
    "schedule": "Have things done at certain times.",
    "job": "Look after long work.",
    "namespace": "Group tables.",
}
_TABLE = {
    command.name: command
    for command in (create.COMMAND, *tables.COMMANDS, *layouts.COMMANDS, *alter.COMMANDS, *past.COMMANDS)
    if command.words[0] == "table"
}
COMMANDS: tuple[Command, ...] = (
    system.SERVE,
    *queries.COMMANDS,
    *_TABLE.values(),
    *(command for command in past.COMMANDS if command.words[0] == "backup"),
    *(command for command in schedules.COMMANDS if command.words[0] == "schedule"),
    *jobs.COMMANDS,
    *(command for command in schedules.COMMANDS if command.words[0] == "namespace"),
    compact.COMMAND,
    system.STOP,
    *system.COMMANDS,
)
