"""`firn table create`: a table from its file, with split points if the file has any."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Request, Response, UsageError, argument, flag
from service.cli.commands.tables import PARTITION_BY, SCHEMA, show_split_points, table_command, table_name
from service.cli.connection.remote import Connection
from service.cli.files import read_object, table_address, table_argument
from service.cli.terminal.format import plural
from service.cli.terminal.printer import Printer
from service.cli.values import merge


def _create(call: Invocation) -> int:
    """Create the table. CREATE_TABLE takes no split points, so a second request sets them."""
    request = call.request()
    points = request.pop("split_points", None)
    with call.connect(needs_spark=points is not None) as connection:
        response = connection.send(request)
        if points is not None and response["success"] and response["table_created"]:
            response = _split(call, connection, points, response)
    return call.show(response)


def _complete(request: Request, args: Args) -> Request:
    if args.properties:
        request["properties"] = merge(request.get("properties", {}), read_object(args.properties))
    if "schema" not in request:
        raise UsageError(f"{args.table} has no schema; use --schema FILE, or a table's file that has one")
    return request


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
    printer.line(f"created {name}" if response["table_created"] else f"{name} already exists")
    if "split_points" in response:
        show_split_points(response["split_points"], printer)
    if "backup" in response:
        rows = plural(response["records_deleted"], "row")
        printer.line(f"{rows} written in the meantime can be restored from {response['backup']}")


COMMAND = table_command(
    "table create",
    "Create a table from its file, or from a schema's file.",
    SCHEMA,
    argument("--properties", "FILE", "a .properties, YAML or JSON file with the table's properties", None),
    PARTITION_BY,
    flag("--if-not-exists", "do nothing if the table exists"),
    operation="CREATE_TABLE",
    address=table_argument,
    complete=_complete,
    run=_create,
    show=_show,
)
