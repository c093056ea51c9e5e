"""What the options of commands set is what their operations take, all of it."""

from pkgutil import iter_modules

import pytest

from handlers import discover
from service.cli import commands
from service.cli.catalogue import COMMANDS, MODULES
from service.cli.command import Command
from service.operations.operation import ChangeRequest

OPERATIONS = {operation.name: operation for operation in discover()}
COMPLETE = [
    "compact",
    "table compact",
    "table repartition",
    "table undo",
    "table reinitialise",
    "backup restore",
]
# What the command itself sends, or an option of every command sets.
OWN = {*ChangeRequest.model_fields, "operation", "async_"}


def settable(command: Command) -> set[str]:
    """The fields that the arguments of a command, or the command itself, set."""
    names = {each.field or each.name.lstrip("-").replace("-", "_") for each in command.arguments}
    return names | set(command.constants)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.name in COMPLETE], ids=lambda each: each.name)
def test_a_command_has_every_option_of_its_operation(command: Command) -> None:
    fields = OPERATIONS[command.operation].request.model_fields
    names = {field.alias or name for name, field in fields.items() if name not in OWN}
    assert names - settable(command) == set()


def test_every_module_of_commands_is_in_the_catalogue() -> None:
    modules = {each.name for each in iter_modules(commands.__path__)}
    assert {each.__name__.rpartition(".")[2] for each in MODULES} == modules
