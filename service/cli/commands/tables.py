"""`firn table list`, `status`, `describe`, `rename`, `drop`, `restore`, `reinitialise`, `online` and `offline`."""

from typing import Any

from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag, repeated
from service.cli.examples import tables as examples
from service.cli.files import read_schema, read_text, table_address, table_argument
from service.cli.terminal.format import format_number, format_size, format_time, format_value, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name, given_fields, single_tenant

_MAX_POINTS = 10
TABLE = argument("table", metavar="TABLE|FILE", help="the table's name, or a YAML or JSON file that describes it")
SCHEMA = argument("--schema", metavar="FILE", help="a YAML or JSON file with the schema: fields, primary_key")
PARTITION_BY = repeated(
    "--partition-by",
    "FIELD[:TRANSFORM[:N]]",
    "a partition field, such as day, placed_at:month, customer:bucket:16",
)


def table_name(args: Args) -> str:
    """The name of the command's table with its namespace."""
    return full_name(table_address(args))


def show_split_points(points: list[Any], printer: Printer) -> None:
    printer.line(f"it is split at {_split_points(points)}")


def show_backup(response: Response, printer: Printer) -> None:
    """Name the backup that a change made of the state before it, if it made one."""
    if response.get("backup"):
        printer.line(f"the state before is kept as {response['backup']}")


def _list(args: Args) -> Request:
    request = {"operation": "LIST_TABLES", "tenant_id": single_tenant(args), "namespace": args.namespace or "default"}
    return {**request, "include_dropped": True} if args.dropped else request


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    offline = set(response.get("offline") or ())
    for table in response["tables"]:
        printer.line(f"{table}  offline" if table in offline else table)
    for dropped in response.get("dropped") or ():
        until = format_time(dropped["restorable_until"])
        printer.line(f"{dropped['table']}  dropped, restorable until {until} as {dropped['table_id']}")
    if printer.width is not None:
        namespace = f"{single_tenant(args)}.{args.namespace or 'default'}"
        printer.line(f"{plural(len(response['tables']), 'table')} in {namespace}")


def _status(args: Args) -> Request:
    request: Request = {"operation": "RECOMMEND", "tenant_id": single_tenant(args), "limit": 10_000}
    return {**request, **given_fields(args, "namespace")}


def _show_status(response: Response, args: Args, printer: Printer) -> None:
    tables = sorted(response["recommendations"], key=lambda r: (r["namespace"], r["table"]))
    columns = [PageColumn("NAMESPACE", name=True), PageColumn("TABLE", name=True), PageColumn("FILES", right=True)]
    columns += [PageColumn("SMALL", right=True), PageColumn("SIZE", right=True), PageColumn("COMPACTION")]
    rows = [
        [
            t["namespace"],
            t["table"],
            format_number(t["files"]),
            format_number(t["small_files"]),
            format_size(t["bytes"]),
            _compaction(t),
        ]
        for t in tables
    ]
    printer.table(columns, rows)
    files, small, recommended = (sum(t[key] for t in tables) for key in ("files", "small_files", "recommended"))
    counts = f"{plural(len(tables), 'table')}, {plural(files, 'file')}, {format_number(small)} small"
    size = format_size(sum(t["bytes"] for t in tables))
    more = "; there are more tables, which --namespace narrows down" if response["truncated"] else ""
    printer.line(f"{counts}, {size}; {recommended} to compact{more}")


def _compaction(table: dict[str, Any]) -> str:
    if not table["online"]:
        return "offline"
    if table["mode"] == "off":
        return "off"
    return "recommended" if table["recommended"] else "not needed"


def _show_description(response: Response, args: Args, printer: Printer) -> None:
    table = response["description"]
    schema, properties = table["schema"], table["properties"]
    partitions = table["partition"].get("partitions", [])
    pairs = {
        "table": table_name(args),
        "description": properties.get("description"),
        "offline": None if table.get("online", True) else "left alone by scheduled maintenance",
        "rows": format_number(table["row_count"]),
        "files": f"{format_number(table['file_count'])}, {format_number(table['small_files_count'])} small",
        "size": format_size(table["total_bytes"]),
        "snapshots": f"{format_number(table['snapshot_count'])}, the last {table['current_snapshot_id'] or '-'}",
        "primary key": ", ".join(schema.get("primary_key", [])) or None,
        "partitioned by": ", ".join(map(_partition_field, partitions)) or None,
        "split at": _split_points(table["split_points"]) if table.get("split_points") else None,
        "compression": properties.get("compression"),
        "compaction": table["compaction"]["mode"] if table["compaction"]["enabled"] else "off",
    }
    printer.pairs({name: value for name, value in pairs.items() if value is not None})
    printer.line()
    columns = [PageColumn("COLUMN", name=True), PageColumn("TYPE"), PageColumn("REQUIRED")]
    rows: list[list[Any]] = [
        [name, _type(field), field.get("required", False)] for name, field in schema["fields"].items()
    ]
    if derived := table.get("derived"):
        columns.append(PageColumn("DERIVED"))
        rows = [[*row, derived.get(row[0])] for row in rows]
    printer.table(columns, rows)


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


def _drop(args: Args) -> Request:
    # The question, or --force, is the confirmation.
    options = {"purge": args.purge, "confirm": True, "if_exists": args.if_exists}
    return {"operation": "DROP_TABLE", **table_address(args), **options}


def _question_before_drop(request: Request) -> str | None:
    if not request["purge"]:
        return None
    return f"The table {full_name(request)} and all of its files are deleted for good."


def _show_dropped(response: Response, args: Args, printer: Printer) -> None:
    if not response["table_dropped"]:
        printer.line(f"there is no {table_name(args)}")
    elif response["purged"]:
        printer.line(f"dropped {table_name(args)} and deleted its files")
    elif response.get("restorable_until"):
        until = format_time(response["restorable_until"])
        printer.line(f"dropped {table_name(args)}; `firn table restore` brings it back until {until}")
    else:
        printer.line(f"dropped {table_name(args)}")


def _restore(args: Args) -> Request:
    request = {"operation": "RESTORE_TABLE", **table_address(args), **given_fields(args, "new_name")}
    return {**request, "table_id": args.id} if args.id else request


def _reinitialise(args: Args) -> Request:
    table = table_argument(args)
    request: Request = {"operation": "REINITIALISE_TABLE", **table_address(args), "confirm": True}
    request |= given_fields(args, "delete_partitions")
    if args.keep:
        request["create_backup"] = True
    if args.schema:
        request["schema"] = read_schema(args.schema)
    if args.split_points:
        request["split_points"] = read_text(args.split_points)
    elif "split_points" in table:
        request["split_points"] = table["split_points"]
    if args.split_points_base64:
        if "split_points" not in request:
            raise UsageError("--split-points-base64 says how split points are written, and there are none")
        request["split_points_base64"] = True
    return request


def _question_before_reinitialise(request: Request) -> str | None:
    if request.get("create_backup"):
        return None
    return f"All rows of the table {full_name(request)} are deleted for good."


def _show_reinitialised(response: Response, args: Args, printer: Printer) -> None:
    printer.line(f"{table_name(args)} is empty: {plural(response['records_deleted'], 'row')} deleted")
    if response.get("split_points"):
        show_split_points(response["split_points"], printer)
    show_backup(response, printer)


def _set_online(online: bool) -> Command:
    word = "online" if online else "offline"
    return Command(
        f"table {word}",
        "Resume scheduled maintenance of a table."
        if online
        else "Pause scheduled maintenance of a table; reads and writes go on.",
        (TABLE,),
        examples.ONLINE if online else examples.OFFLINE,
        request=lambda args: {"operation": "SET_ONLINE", **table_address(args), "online": online},
        show=lambda response, args, printer: printer.line(f"{table_name(args)} is {word}"),
    )


COMMANDS = (
    Command(
        "table list",
        "List the tables of a namespace.",
        (flag("--dropped", "include dropped tables that can be restored"),),
        examples.LIST,
        request=_list,
        show=_show_list,
    ),
    Command(
        "table status",
        "Show the size and the small files of every table.",
        (argument("--namespace", metavar="NAME", help="only the tables of this namespace"),),
        examples.STATUS,
        request=_status,
        show=_show_status,
    ),
    Command(
        "table describe",
        "Describe a table: columns, partitioning, rows, files.",
        (TABLE,),
        examples.DESCRIBE,
        request=lambda args: {"operation": "DESCRIBE_TABLE", **table_address(args)},
        show=_show_description,
    ),
    Command(
        "table rename",
        "Rename a table.",
        (TABLE, argument("new_name", metavar="NEW_NAME", help="the new name")),
        examples.RENAME,
        request=lambda args: {"operation": "RENAME_TABLE", **table_address(args), "new_name": args.new_name},
        show=lambda response, args, printer: printer.line(f"renamed {table_name(args)} to {args.new_name}"),
    ),
    Command(
        "table drop",
        "Drop a table. It can be restored unless its files are deleted.",
        (
            TABLE,
            flag("--purge", "delete its files, for good"),
            flag("--if-exists", "do nothing if the table does not exist"),
        ),
        examples.DROP,
        request=_drop,
        show=_show_dropped,
        question=_question_before_drop,
    ),
    Command(
        "table restore",
        "Restore a dropped table with its rows and its history.",
        (
            TABLE,
            argument("--new-name", metavar="NAME", help="restore it under this name"),
            argument("--id", metavar="ID", help="which of several tables of this name; the last that was dropped"),
        ),
        examples.RESTORE,
        request=_restore,
        show=lambda response, args, printer: printer.line(
            f"restored {table_address(args)['namespace']}.{response['table']}"
        ),
    ),
    Command(
        "table reinitialise",
        "Delete all rows of a table; can change schema and layout, too.",
        (
            TABLE,
            flag("--delete-partitions", "remove the partitioning"),
            argument("--split-points", metavar="FILE", help="split points of the first key column, one on a line"),
            flag("--split-points-base64", "the split points are encoded in base64"),
            SCHEMA,
            flag("--keep", "keep the current state as a backup"),
        ),
        examples.REINITIALISE,
        request=_reinitialise,
        show=_show_reinitialised,
        question=_question_before_reinitialise,
        needs_spark=True,
    ),
    _set_online(True),
    _set_online(False),
)
