"""`firn table create`: a table of its file, split where the file says so."""

from typing import Any

from service.cli.call import Call
from service.cli.command import Answer, Args, Command, Misused, Request, argument, flag
from service.cli.examples import tables as examples
from service.cli.files import address, read, read_schema, table_of
from service.cli.page import Page, count
from service.cli.remote import Door
from service.cli.tables import PARTITION_BY, SCHEMA, TABLE, points_of
from service.cli.values import full_name, overlaid, partition_of


def _create(call: Call) -> int:
    """Create the table; one with split points is then made anew with them, which CREATE_TABLE does not take."""
    table = _table(call.args)
    points = table.pop("split_points", None)
    request = {"operation": "CREATE_TABLE", **table, "if_not_exists": call.args.if_not_exists}
    with call.door(spark=points is not None) as door:
        answer = door.ask(request)
        if points is not None and answer["success"] and answer["table_created"]:
            answer = _split(call, door, points, answer)
    return call.tell(answer)


def _table(args: Args) -> Request:
    table = table_of(args)
    if args.schema:
        table["schema"] = read_schema(args.schema)
    if args.properties:
        table["properties"] = overlaid(table.get("properties", {}), read(args.properties))
    if args.partition_by:
        table["partition"] = partition_of(args.partition_by)
    if "schema" not in table:
        raise Misused(f"{args.table} has no schema; give one with --schema FILE, or a table's file with one in it")
    return table


def _split(call: Call, door: Door, points: Any, created: Answer) -> Answer:
    # With a backup, as somebody may have written to the table meanwhile.
    wish = {"split_points": points, "confirm": True, "create_backup": True}
    split: Answer = {"success": False}
    try:
        split = door.ask({"operation": "REINITIALISE_TABLE", **address(call.args), **wish})
    finally:
        if not split["success"]:
            way_out = f"`firn table reinitialise {call.args.table}` splits it"
            call.say(f"{full_name(address(call.args))} is created, but not split; {way_out}")
    if not split["success"]:
        return split
    kept = {name: split[name] for name in ("records_deleted", "backup") if split.get("backup")}
    return {**created, "split_points": split["split_points"], **kept}


def _created(answer: Answer, args: Args, page: Page) -> None:
    name = full_name(address(args))
    page.line(f"created {name}" if answer["table_created"] else f"{name} is there already")
    if "split_points" in answer:
        page.line(f"it is split at {points_of(answer['split_points'])}")
    if "backup" in answer:
        rows = count(answer["records_deleted"], "row")
        page.line(f"{rows} that came meanwhile went by that, and can be restored from {answer['backup']}")


COMMAND = Command(
    "table create",
    "Create a table, from its file or from a schema's.",
    (
        TABLE,
        SCHEMA,
        argument("--properties", metavar="FILE", help="a .properties, YAML or JSON file: how the table is kept"),
        PARTITION_BY,
        flag("--if-not-exists", "be content where the table is there already"),
    ),
    examples.CREATE,
    run=_create,
    show=_created,
)
