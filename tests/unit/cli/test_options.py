"""What the options of commands set is what their operations take, all of it."""

import shlex
from pkgutil import iter_modules

import pytest

from handlers import discover
from service.cli import commands
from service.cli.catalogue import COMMANDS, MODULES
from service.cli.command import WITHOUT_SPARK, Command
from service.operations.operation import ChangeRequest
from tests.cli import Called
from tests.unit.cli.test_commands import Service, firn

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


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("table ingest t '' --date 2024-01-31", "FILE"),
        ("table ingest t sales.csv --date ''", "--date"),
        ("table ingest-range t {date}.csv --from 2024-01-31 --to ''", "--to"),
        ("table rollback t --as-of ''", "--as-of"),
        ("table undo t ''", "REQUEST"),
        ("backup delete t ''", "BACKUP"),
        ("schedule delete ''", "SCHEDULE"),
        ("namespace create ''", "NAMESPACE"),
    ],
)
def test_an_argument_that_is_required_must_not_be_empty(line: str, shown: str) -> None:
    service = Service()
    assert firn(shlex.split(line), service) == Called(2, "", f"firn: {shown} is empty; give a value\n")
    assert service.asked == []


def test_the_operations_without_spark_are_those_of_the_pools_for_metadata() -> None:
    # A run of a schedule is metadata, but the compactions that it starts need Spark.
    without = {each.name for each in OPERATIONS.values() if each.pool in ("metadata", "tables")}
    assert without - {"RUN_SCHEDULE"} == WITHOUT_SPARK


def test_every_module_of_commands_is_in_the_catalogue() -> None:
    modules = {each.name for each in iter_modules(commands.__path__)}
    assert {each.__name__.rpartition(".")[2] for each in MODULES} == modules
