"""`firn table …`: what tables there are, and their lives."""

from typing import Any

from service.cli.command import Answer, Args, Command, Misused, Request, argument, flag, repeated
from service.cli.examples import tables as examples
from service.cli.files import address, read_schema, read_text, table_of
from service.cli.page import Column, Page, count, moment, number, shown, size
from service.cli.values import full_name, tenant_of

_POINTS = 10
TABLE = argument("table", metavar="TABLE|FILE", help="the table's name, or a YAML or JSON file that describes it")
SCHEMA = argument("--schema", metavar="FILE", help="a YAML or JSON file with the schema: fields, primary_key")
PARTITION_BY = repeated(
    "--partition-by",
    "FIELD[:TRANSFORM[:N]]",
    "a partition field, such as day, placed_at:month, customer:bucket:16",
)


def _list(args: Args) -> Request:
    request: Request = {"operation": "LIST_TABLES", "tenant_id": tenant_of(args)}
    request["namespace"] = args.namespace or "default"
    return {**request, "include_dropped": True} if args.dropped else request


def _listed(answer: Answer, args: Args, page: Page) -> None:
    offline = set(answer.get("offline") or ())
    for table in answer["tables"]:
        page.line(f"{table}  offline" if table in offline else table)
    for told in answer.get("dropped") or ():
        page.line(
            f"{told['table']}  dropped, restorable until {moment(told['restorable_until'])} as {told['table_id']}"
        )
    place = f"{tenant_of(args)}.{args.namespace or 'default'}"
    if page.width is not None:
        page.line(f"{count(len(answer['tables']), 'table')} in {place}")


def _status(args: Args) -> Request:
    request: Request = {"operation": "RECOMMEND", "tenant_id": tenant_of(args), "limit": 10_000}
    return {**request, "namespace": args.namespace} if args.namespace else request


def _state(answer: Answer, args: Args, page: Page) -> None:
    found = sorted(answer["recommendations"], key=lambda r: (r["namespace"], r["table"]))
    columns = [Column("NAMESPACE", name=True), Column("TABLE", name=True), Column("FILES", right=True)]
    columns += [Column("SMALL", right=True), Column("SIZE", right=True), Column("COMPACTION")]
    page.table(
        columns,
        [
            [r["namespace"], r["table"], number(r["files"]), number(r["small_files"]), size(r["bytes"]), _advice(r)]
            for r in found
        ],
    )
    files, small = sum(r["files"] for r in found), sum(r["small_files"] for r in found)
    advised = sum(r["recommended"] for r in found)
    total = f"{count(len(found), 'table')}, {count(files, 'file')}, {number(small)} small, "
    more = "; there are more tables, which --namespace narrows down" if answer["truncated"] else ""
    page.line(f"{total}{size(sum(r['bytes'] for r in found))}; {advised} to compact{more}")


def _advice(told: dict[str, Any]) -> str:
    if not told["online"]:
        return "offline"
    if told["mode"] == "off":
        return "off"
    return "recommended" if told["recommended"] else "not needed"


def _described(answer: Answer, args: Args, page: Page) -> None:
    told = answer["description"]
    properties = told["properties"]
    partitions = told["partition"].get("partitions", [])
    pairs = {
        "table": _name(args),
        "description": properties.get("description"),
        "offline": None if told.get("online", True) else "left alone by scheduled upkeep",
        "rows": number(told["row_count"]),
        "files": f"{number(told['file_count'])}, {number(told['small_files_count'])} small",
        "size": size(told["total_bytes"]),
        "snapshots": f"{number(told['snapshot_count'])}, the last {told['current_snapshot_id'] or '-'}",
        "primary key": ", ".join(told["schema"].get("primary_key", [])) or None,
        "partitioned by": ", ".join(map(_field_of, partitions)) or None,
        "split at": points_of(told["split_points"]) if told.get("split_points") else None,
        "compression": properties.get("compression"),
        "compaction": told["compaction"]["mode"] if told["compaction"]["enabled"] else "off",
    }
    page.pairs({name: value for name, value in pairs.items() if value is not None})
    page.line()
    derived = told.get("derived") or {}
    columns = [Column("COLUMN", name=True), Column("TYPE"), Column("REQUIRED")]
    rows: list[list[Any]] = [
        [name, type_of(field), field.get("required", False)] for name, field in told["schema"]["fields"].items()
    ]
    if derived:
        columns.append(Column("DERIVED"))
        rows = [[*row, derived.get(row[0])] for row in rows]
    page.table(columns, rows)


def points_of(points: list[Any]) -> str:
    """Split points in one line; of many the first ones."""
    told = ", ".join(map(shown, points[:_POINTS]))
    return told if len(points) <= _POINTS else f"{told} and {number(len(points) - _POINTS)} more"


def type_of(field: dict[str, Any]) -> str:
    """A column's type in one cell."""
    kind = field["type"]
    if kind == "array":
        return f"array<{_inner(field['items'])}>"
    if kind == "map":
        return f"map<{_inner(field['key_type'])}, {_inner(field['value_type'])}>"
    if kind == "struct":
        return "struct<" + ", ".join(f"{n}: {type_of(f)}" for n, f in field["fields"].items()) + ">"
    return str(kind)


def _inner(kind: Any) -> str:
    return type_of(kind) if isinstance(kind, dict) else str(kind)


def _field_of(field: dict[str, Any]) -> str:
    number_of = field.get("num_buckets") or field.get("width")
    transform = field.get("transform", "identity")
    if transform == "identity":
        return str(field["field"])
    return f"{transform}({number_of}, {field['field']})" if number_of else f"{transform}({field['field']})"


def _drop(args: Args) -> Request:
    # The question, or --force, is the confirmation.
    wish = {"purge": args.purge, "confirm": True, "if_exists": args.if_exists}
    return {"operation": "DROP_TABLE", **address(args), **wish}


def _ask_drop(request: Request) -> str | None:
    if not request["purge"]:
        return None
    return f"The table {full_name(request)} and all of its files are deleted for good."


def _dropped(answer: Answer, args: Args, page: Page) -> None:
    if not answer["table_dropped"]:
        page.line(f"there is no {_name(args)}")
    elif answer["purged"]:
        page.line(f"dropped {_name(args)} and deleted its files")
    elif answer.get("restorable_until"):
        until = moment(answer["restorable_until"])
        page.line(f"dropped {_name(args)}; `firn table restore` brings it back until {until}")
    else:
        page.line(f"dropped {_name(args)}")


def _restore(args: Args) -> Request:
    request: Request = {"operation": "RESTORE_TABLE", **address(args)}
    wishes = {"new_name": args.new_name, "table_id": args.id}
    return request | {name: value for name, value in wishes.items() if value}


def _restored(answer: Answer, args: Args, page: Page) -> None:
    page.line(f"restored {address(args)['namespace']}.{answer['table']}")


def _reinitialise(args: Args) -> Request:
    table = table_of(args)
    request: Request = {"operation": "REINITIALISE_TABLE", **address(args), "confirm": True}
    if args.delete_partitions:
        request["delete_partitions"] = True
    if args.keep:
        request["create_backup"] = True
    if args.schema:
        request["schema"] = read_schema(args.schema)
    if "split_points" in table:
        request["split_points"] = table["split_points"]
    if args.split_points:
        request["split_points"] = read_text(args.split_points)
    if args.split_points_base64:
        if "split_points" not in request:
            raise Misused("--split-points-base64 says how split points are written, and there are none")
        request["split_points_base64"] = True
    return request


def _emptied(answer: Answer, args: Args, page: Page) -> None:
    page.line(f"{_name(args)} is empty: {count(answer['records_deleted'], 'row')} deleted")
    if answer.get("split_points"):
        page.line(f"it is split at {points_of(answer['split_points'])}")
    if answer.get("backup"):
        page.line(f"the state before is kept as {answer['backup']}")


def _ask_reinitialise(request: Request) -> str | None:
    if request.get("create_backup"):
        return None
    return f"All rows of the table {full_name(request)} are deleted for good."


def _rename(args: Args) -> Request:
    return {"operation": "RENAME_TABLE", **address(args), "new_name": args.new_name}


def _turn(online: bool) -> Command:
    word = "online" if online else "offline"
    summary = (
        "Have scheduled upkeep look after a table again."
        if online
        else "Have scheduled upkeep leave a table alone; it is read and written as before."
    )
    return Command(
        f"table {word}",
        summary,
        (TABLE,),
        examples.ONLINE if online else examples.OFFLINE,
        request=lambda args: {"operation": "SET_ONLINE", **address(args), "online": online},
        show=lambda answer, args, page: page.line(f"{_name(args)} is {word}"),
    )


def _name(args: Args) -> str:
    return full_name(address(args))


COMMANDS = (
    Command(
        "table list",
        "List the tables of a namespace.",
        (flag("--dropped", "also those that were dropped and can be restored"),),
        examples.LIST,
        request=_list,
        show=_listed,
    ),
    Command(
        "table status",
        "Show the files, the size and the small files of every table.",
        (argument("--namespace", metavar="NAME", help="only the tables of this one"),),
        examples.STATUS,
        request=_status,
        show=_state,
    ),
    Command(
        "table describe",
        "Describe a table: columns, partitioning, rows, files.",
        (TABLE,),
        examples.DESCRIBE,
        request=lambda args: {"operation": "DESCRIBE_TABLE", **address(args)},
        show=_described,
    ),
    Command(
        "table rename",
        "Give a table another name.",
        (TABLE, argument("new_name", metavar="NEW_NAME", help="its name from now on")),
        examples.RENAME,
        request=_rename,
        show=lambda answer, args, page: page.line(f"renamed {_name(args)} to {args.new_name}"),
    ),
    Command(
        "table drop",
        "Drop a table; it can be restored unless its files are deleted, too.",
        (
            TABLE,
            flag("--purge", "delete its files, for good"),
            flag("--if-exists", "be content where there is no such table"),
        ),
        examples.DROP,
        request=_drop,
        show=_dropped,
        question=_ask_drop,
    ),
    Command(
        "table restore",
        "Bring a dropped table back, with its rows and its history.",
        (
            TABLE,
            argument("--new-name", metavar="NAME", help="the name that it is to have; the one it had"),
            argument("--id", metavar="ID", help="which one, where several had the name; the last that was dropped"),
        ),
        examples.RESTORE,
        request=_restore,
        show=_restored,
    ),
    Command(
        "table reinitialise",
        "Delete all rows of a table, and begin anew with it.",
        (
            TABLE,
            flag("--delete-partitions", "forget the partitioning, too"),
            argument("--split-points", metavar="FILE", help="split points of the first key, one on a line"),
            flag("--split-points-base64", "they are written in base64"),
            SCHEMA,
            flag("--keep", "keep what the table holds now as a backup"),
        ),
        examples.REINITIALISE,
        request=_reinitialise,
        show=_emptied,
        question=_ask_reinitialise,
        spark=True,
    ),
    _turn(True),
    _turn(False),
)
