"""`firn table …`: create, list, describe, rename, drop, restore and empty tables; and what other modules share."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Argument, Command, Request, Response, UsageError, argument, flag, number, repeated
from service.cli.connection.remote import Connection
from service.cli.files import parse_filter, read_object, read_schema, read_text, table_address, table_argument
from service.cli.table_files import config_fields, table_file
from service.cli.terminal.format import format_number, format_size, format_time, format_value, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name, merge, name_beside, parse_partition, single_tenant

_MAX_POINTS = 10
TABLE = argument("table", "TABLE|FILE", "the table's name, or a YAML or JSON file that describes it", None)
SCHEMA = argument("--schema", "FILE", "a YAML or JSON file with the schema: fields, primary_key", parse=read_schema)
PARTITION_BY = repeated(
    "--partition-by",
    "FIELD[:TRANSFORM[:N]]",
    "a partition field, such as day, placed_at:month, customer:bucket:16",
    "partition",
    parse_partition,
)
BACKUP = (
    Argument(
        "--backup",
        {"action": "store_true", "dest": "create_backup", "help": "keep the current state as a backup"},
        "create_backup",
    ),
    number("--backup-retention-hours", "keep the backup for this long (default: the table's setting)"),
)
DATASET_CONFIG = argument(
    "--dataset-config", "FILE", "the dataset file (default: the one that the table file names)", None
)
STATE = "a snapshot id, a time, or the name of a tag or backup"
DRY_RUN = flag("--dry-run", "only show what would be done")


def scope_options(items: str) -> tuple[Argument, ...]:
    """The options for the items of one namespace, or of all."""
    return (
        argument("--namespace", "NAME", f"{items} of this namespace (default: default)", short="-n"),
        flag("--all-namespaces", f"{items} of all namespaces", "scope", "tenant", short="-A"),
    )


def filter_option(name: str, help: str, field: str = "") -> Argument:
    """An option with a filter: an expression or JSON."""
    return argument(name, "FILTER", help, field, partial(parse_filter, where=name))


PARTITION_FILTER = filter_option(
    "--partition-filter", "only these partitions: an expression such as 'day = 5', or JSON"
)


def table_command(name: str, summary: str, *arguments: Argument, **more: Any) -> Command:
    """A command about the table that its first argument names."""
    return Command(name, summary, (TABLE, *arguments), **{"address": table_address, **more})


def show_items(noun: str, columns: Sequence[PageColumn], advice: str = "") -> Callable[[Response, Args, Printer], None]:
    """A renderer of a list: a table with a row for each item, their number, and advice if there are more."""

    def show(response: Response, args: Args, printer: Printer) -> None:
        items = response[f"{noun}s"]
        printer.items(columns, items)
        printer.line(f"{plural(len(items), noun)}{advice if response.get('next_cursor') else ''}")

    return show


def table_name(args: Args) -> str:
    """The name of the command's table with its namespace."""
    return full_name(table_address(args))


def show_backup(response: Response, printer: Printer) -> None:
    """Name the backup that a change made of the state before it, if it made one."""
    if response.get("backup"):
        printer.line(f"the previous state is kept as {response['backup']}")


def _create(call: Invocation) -> int:
    """Create the table. CREATE_TABLE takes no split points, so a second request sets them."""
    request = call.request()
    if "config" in request:
        request |= config_fields(call.args, call.url)
    points = request.pop("split_points", None)
    with call.connect(needs_spark=points is not None) as connection:
        response = connection.send(request)
        if points is not None and response["success"] and response["table_created"]:
            response = _split(call, connection, points, response)
    return call.show(response)


def _complete_table(request: Request, args: Args) -> Request:
    if args.properties:
        request["properties"] = merge(request.get("properties", {}), read_object(args.properties))
    if "config" not in request and args.dataset_config:
        raise UsageError(f"--dataset-config needs a table file, and {args.table} is none")
    if not {"schema", "config"} & request.keys():
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


def _show_created(response: Response, args: Args, printer: Printer) -> None:
    name = table_name(args)
    if response["table_created"] and (file := table_file(args)) is not None:
        printer.success(f"Table created: {name.removeprefix('default.')}")
        if file.get("storage"):
            printer.line(f"  Base path: {file['storage']['base_path']}")
        return
    printer.line(f"created {name}" if response["table_created"] else f"{name} already exists")
    if "split_points" in response:
        printer.line(f"it is split at {_split_points(response['split_points'])}")
    if "backup" in response:
        rows = plural(response["records_deleted"], "row")
        printer.line(f"{rows} written in the meantime can be restored from {response['backup']}")


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    if args.details:
        printer.items(_DETAILS_COLUMNS, response["details"])
    else:
        for table in response["tables"]:
            marks = [mark for mark in ("dynamic", "offline") if table in (response.get(mark) or ())]
            printer.line(f"{table}  {', '.join(marks)}" if marks else table)
    for dropped in response.get("dropped") or ():
        until = format_time(dropped.get("expires_at"))
        printer.line(f"{dropped['table']}  dropped, restorable until {until} as {dropped['table_id']}")
    if printer.width is not None:
        printer.line(
            f"{plural(len(response['tables']), 'table')} in {single_tenant(args)}.{args.namespace or 'default'}"
        )
        if others := response.get("namespaces_with_tables"):
            printer.line(f"there are tables in {', '.join(others)}; name one with --namespace")


_DETAILS_COLUMNS = (
    PageColumn("TABLE", name=True, value=lambda table: table["table"]),
    PageColumn("ROWS", right=True, value=lambda table: format_number(table["records"])),
    PageColumn("FILES", right=True, value=lambda table: format_number(table["files"])),
    PageColumn("SMALL", right=True, value=lambda table: format_number(table["small_files_count"])),
    PageColumn("SIZE", right=True, value=lambda table: format_size(table["bytes"])),
    PageColumn("CHANGED", whole=True, value=lambda table: format_time(table.get("changed_at"))),
    PageColumn("ONLINE", value=lambda table: table["online"]),
    PageColumn("DYNAMIC", value=lambda table: table["dynamic"]),
)


def _show_description(response: Response, args: Args, printer: Printer) -> None:
    table = response["description"]
    schema, properties = table["schema"], table["properties"]
    partitions = table["partition"].get("partitions", [])
    printer.pairs(
        {
            "table": table_name(args),
            "description": properties.get("description"),
            "dynamic": "the result of a query; see `firn dynamic describe`" if table.get("dynamic") else None,
            "offline": None if table.get("online", True) else "skipped by scheduled maintenance",
            "rows": format_number(table["row_count"]),
            "files": f"{format_number(table['file_count'])}, {format_number(table['small_files_count'])} small",
            "size": format_size(table["total_bytes"]),
            "snapshots": _snapshots(table),
            "primary key": ", ".join(schema.get("primary_key", [])) or None,
            "partitioned by": ", ".join(map(_partition_field, partitions)) or None,
            "split at": _split_points(table["split_points"]) if table.get("split_points") else None,
            "compression": properties.get("compression"),
            "policy": "shows some senders less; see `firn policy show`" if table.get("has_policy") else None,
            "compaction": table["compaction"]["mode"] if table["compaction"]["enabled"] else "off",
        }
    )
    printer.line()
    columns = [
        PageColumn("COLUMN", name=True, value=lambda item: item[0]),
        PageColumn("TYPE", value=lambda item: _type(item[1])),
        PageColumn("REQUIRED", value=lambda item: item[1].get("required", False)),
    ]
    if derived := table.get("derived"):
        columns.append(PageColumn("DERIVED", value=lambda item: derived.get(item[0])))
    printer.items(columns, schema["fields"].items())


def _snapshots(table: dict[str, Any]) -> str:
    last = table.get("current_snapshot_id")
    return format_number(table["snapshot_count"]) + (f", the last {last}" if last else "")


def _split_points(points: list[Any]) -> str:
    first = ", ".join(map(format_value, points[:_MAX_POINTS]))
    return first if len(points) <= _MAX_POINTS else f"{first} and {format_number(len(points) - _MAX_POINTS)} more"


def _type(field: Any) -> str:
    """A type in one cell: the name of a simple one, or a field with a `type` and its parts."""
    if not isinstance(field, dict):
        return str(field)
    kind = field["type"]
    if kind == "array":
        return f"array<{_type(field['items'])}>"
    if kind == "map":
        return f"map<{_type(field['key_type'])}, {_type(field['value_type'])}>"
    if kind == "struct":
        return "struct<" + ", ".join(f"{name}: {_type(f)}" for name, f in field["fields"].items()) + ">"
    return str(kind)


def _partition_field(field: dict[str, Any]) -> str:
    transform = field.get("transform", "identity")
    if transform == "identity":
        return str(field["field"])
    number = field.get("num_buckets") or field.get("width")
    return f"{transform}({number}, {field['field']})" if number else f"{transform}({field['field']})"


def _deletion(request: Request) -> str:
    return f"The table {full_name(request)} and all of its files are deleted for good."


def _show_dropped(response: Response, args: Args, printer: Printer) -> None:
    name = table_name(args)
    if not response["table_dropped"]:
        printer.line(f"{name} does not exist")
    elif response["purged"]:
        printer.line(f"dropped {name} and deleted its files")
    elif response.get("expires_at"):
        until = format_time(response["expires_at"])
        printer.line(f"dropped {name}; `firn table restore` can bring it back until {until}")
    else:
        printer.line(f"dropped {name}")


def _complete_reinitialise(request: Request, args: Args) -> Request:
    if "split_points_base64" in request and "split_points" not in request:
        raise UsageError("--split-points-base64 says how split points are written, but none are given")
    return request


def _check_reinitialise(request: Request, connection: Connection) -> Response | None:
    """The response to a request that would fail: unconfirmed, it is refused for any other reason first."""
    response = connection.send({**request, "confirm": False})
    is_fine = not response["success"] and response["error"]["code"] == "CONFIRMATION_REQUIRED"
    return None if is_fine else response


def _show_reinitialised(response: Response, args: Args, printer: Printer) -> None:
    printer.line(f"{table_name(args)} is empty: {plural(response['records_deleted'], 'row')} deleted")
    if response.get("split_points"):
        printer.line(f"it is split at {_split_points(response['split_points'])}")
    show_backup(response, printer)


def _set_online(word: str, summary: str) -> Command:
    return table_command(
        f"table {word}",
        summary,
        operation="SET_ONLINE",
        constants={"online": word == "online"},
        show=lambda response, args, printer: printer.line(f"{table_name(args)} is {word}"),
    )


COMMANDS = (
    table_command(
        "table create",
        "Create a table from a table file, from its file, or from a schema's file.",
        SCHEMA,
        argument("--properties", "FILE", "a .properties, YAML or JSON file with the table's properties", None),
        PARTITION_BY,
        DATASET_CONFIG,
        flag("--if-not-exists", "do nothing if the table exists"),
        operation="CREATE_TABLE",
        address=table_argument,
        complete=_complete_table,
        run=_create,
        show=_show_created,
    ),
    Command(
        "table list",
        "List the tables of a namespace.",
        (
            flag("--details", "with the rows, files, size and last change of each"),
            flag("--dropped", "include dropped tables that can be restored", "include_dropped"),
        ),
        operation="LIST_TABLES",
        complete=lambda request, args: {**request, "namespace": args.namespace or "default"},
        lists=("tables", "offline", "dynamic", "details", "dropped"),
        show=_show_list,
    ),
    table_command(
        "table describe",
        "Describe a table: columns, partitioning, rows, files.",
        operation="DESCRIBE_TABLE",
        show=_show_description,
    ),
    table_command(
        "table rename",
        "Rename a table.",
        argument("new_name", "NEW_NAME", "the new name"),
        operation="RENAME_TABLE",
        complete=lambda request, args: name_beside(request, "new_name"),
        show=lambda response, args, printer: printer.line(f"renamed {table_name(args)} to {args.new_name}"),
    ),
    table_command(
        "table drop",
        "Drop a table. It can be restored unless its files are deleted.",
        flag("--purge", "delete its files, for good"),
        flag("--although-read", "drop it although dynamic tables read it", "confirm"),
        flag("--if-exists", "do nothing if the table does not exist"),
        operation="DROP_TABLE",
        # The question, or --yes, confirms that files are deleted.
        complete=lambda request, args: {**request, "confirm": True} if args.purge else request,
        question=lambda request: (
            _deletion(request)
            if "purge" in request
            else f"The table {full_name(request)} is dropped; `firn table restore` can bring it back for some time."
        ),
        show=_show_dropped,
    ),
    table_command(
        "table delete",
        "Delete a table for good: its rows, its files, its history, its backups.",
        flag("--if-exists", "do nothing if the table does not exist"),
        Argument("--force", {"action": "store_true", "dest": "yes", "help": "do not ask for confirmation"}, None),
        operation="DROP_TABLE",
        constants={"confirm": True, "purge": True},
        question=_deletion,
        show=lambda response, args, printer: printer.line(
            f"deleted {table_name(args)}" if response["table_dropped"] else f"{table_name(args)} does not exist"
        ),
        details="A dropped table can be restored; a deleted one cannot.",
    ),
    table_command(
        "table restore",
        "Restore a dropped table with its rows and its history.",
        argument("--new-name", "NAME", "restore it under this name"),
        argument("--id", "ID", "the dropped table's id (default: the one dropped last)", "table_id"),
        operation="RESTORE_TABLE",
        complete=lambda request, args: name_beside(request, "new_name"),
        show=lambda response, args, printer: printer.line(
            f"restored {table_address(args)['namespace']}.{response['table']}"
        ),
    ),
    table_command(
        "table reinitialise",
        "Delete all rows of a table; can change schema and layout, too.",
        flag("--delete-partitions", "remove the partitioning"),
        argument("--split-points", "FILE", "split points of the first key column, one per line", parse=read_text),
        flag("--split-points-base64", "the split points are encoded in base64"),
        SCHEMA,
        *BACKUP,
        operation="REINITIALISE_TABLE",
        constants={"confirm": True},
        address=lambda args: table_address(args, "split_points"),
        complete=_complete_reinitialise,
        check=_check_reinitialise,
        question=lambda request: (
            f"All rows of the table {full_name(request)} are deleted. `firn table rollback` can bring them back until "
            "their snapshots expire; --backup keeps them longer."
            if "create_backup" not in request
            else None
        ),
        show=_show_reinitialised,
    ),
    _set_online("online", "Resume scheduled maintenance of a table."),
    _set_online("offline", "Pause scheduled maintenance of a table; reads and writes continue."),
)
