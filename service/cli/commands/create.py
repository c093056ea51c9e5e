"""`firn table create`: a table from its file, with split points if the file has any."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag
from service.cli.commands.tables import PARTITION_BY, SCHEMA, TABLE, show_split_points, table_name
from service.cli.connection.remote import Connection
from service.cli.examples import tables as examples
from service.cli.files import read_object, read_schema, table_address, table_argument
from service.cli.terminal.format import plural
from service.cli.terminal.printer import Printer
from service.cli.values import merge, parse_partition


def _create(call: Invocation) -> int:
    """Create the table. CREATE_TABLE takes no split points, so a second request sets them."""
    table = _table(call.args)
    points = table.pop("split_points", None)
    request = {"operation": "CREATE_TABLE", **table, "if_not_exists": call.args.if_not_exists}
    with call.connect(needs_spark=points is not None) as connection:
        response = connection.send(request)
        if points is not None and response["success"] and response["table_created"]:
            response = _split(call, connection, points, response)
    return call.show(response)


def _table(args: Args) -> Request:
    table = table_argument(args)
    if args.schema:
        table["schema"] = read_schema(args.schema)
    if args.properties:
        table["properties"] = merge(table.get("properties", {}), read_object(args.properties))
    if args.partition_by:
        table["partition"] = parse_partition(args.partition_by)
    if "schema" not in table:
        raise UsageError(f"{args.table} has no schema; give one with --schema FILE, or a table's file with one in it")
    return table


def _split(call: Invocation, connection: Connection, points: Any, created: Response) -> Response:
    # With a backup, because somebody may have written to the table in the meantime.
    options = {"split_points": points, "confirm": True, "create_backup": True}
    response: Response = {"success": False}
    try:
        response = connection.send({"operation": "REINITIALISE_TABLE", **table_address(call.args), **options})
    finally:
        if not response["success"]:
            advice = f"`firn table reinitialise {call.args.table}` splits it"
            call.notify(f"{table_name(call.args)} is created, but not split; {advice}")
    if not response["success"]:
        return response
    backup = {name: response[name] for name in ("records_deleted", "backup") if response.get("backup")}
    return {**created, "split_points": response["split_points"], **backup}


def _show(response: Response, args: Args, printer: Printer) -> None:
    name = table_name(args)
    printer.line(f"created {name}" if response["table_created"] else f"{name} is there already")
    if "split_points" in response:
        show_split_points(response["split_points"], printer)
    if "backup" in response:
        rows = plural(response["records_deleted"], "row")
        printer.line(f"{rows} written in the meantime can be restored from {response['backup']}")


COMMAND = Command(
    "table create",
    "Create a table from its file, or from a schema's file.",
    (
        TABLE,
        SCHEMA,
        argument("--properties", metavar="FILE", help="a .properties, YAML or JSON file with the table's properties"),
        PARTITION_BY,
        flag("--if-not-exists", "do nothing if the table exists"),
    ),
    examples.CREATE,
    run=_create,
    show=_show,
)
