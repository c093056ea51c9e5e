"""`firn query`: rows for people; and `firn call`: any request."""

import json
from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag, repeated
from service.cli.examples import queries as examples
from service.cli.files import decode, parse_json, parse_value, read_text
from service.cli.terminal.format import format_data, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import given_fields, parse_assignments, single_tenant, split_list

# Operations that only read or change metadata. All others may need Spark.
WITHOUT_SPARK = frozenset(
    {
        "ALTER_TABLE",
        "COMPACTION_LOG",
        "CREATE_NAMESPACE",
        "CREATE_SCHEDULE",
        "CREATE_TABLE",
        "DELETE_BACKUP",
        "DELETE_SCHEDULE",
        "DESCRIBE_TABLE",
        "DROP_NAMESPACE",
        "DROP_TABLE",
        "HISTORY",
        "LIST_BACKUPS",
        "LIST_JOBS",
        "LIST_NAMESPACES",
        "LIST_PARTITIONS",
        "LIST_SCHEDULES",
        "LIST_TABLES",
        "RECOMMEND",
        "RENAME_TABLE",
        "RESTORE_TABLE",
        "SET_COMPACTION",
        "SET_ONLINE",
    }
)


def _query(args: Args) -> Request:
    request: Request = {
        "operation": "QUERY",
        "tenant_id": single_tenant(args),
        "namespace": args.namespace or "default",
    }
    if args.sql and args.table:
        raise UsageError("--sql names its tables itself; leave the table out")
    if not args.sql and not args.table:
        raise UsageError("no table is given; name one, or use --sql")
    if args.sql:
        request["sql"] = args.sql
        if args.param:
            params = parse_assignments(args.param, "--param")
            request["params"] = {name: parse_value(value, f"--param {name}") for name, value in params.items()}
    else:
        request |= {"table": args.table, **_parts(args)}
    return {**request, "limit": args.limit, **given_fields(args, "offset", "as_of", "explain")}


def _parts(args: Args) -> Request:
    parts: Request = {}
    if args.columns:
        parts["projection"] = split_list(args.columns)
    if args.where:
        is_json = args.where.lstrip().startswith(("{", "["))
        parts["filter"] = parse_json(args.where, "--where") if is_json else {"expression": args.where}
    if args.sort:
        parts["sort"] = [_sort_field(text) for text in split_list(args.sort)]
    return {**parts, **given_fields(args, "distinct")}


def _sort_field(text: str) -> dict[str, str]:
    field, _, order = text.partition(" ")
    return {"field": field, "order": order.strip() or "asc"}


def _show_rows(response: Response, args: Args, printer: Printer) -> None:
    if response.get("plan"):
        printer.text(response["plan"])
        return
    rows = response["data"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        columns = [PageColumn(name, right=all(_is_number(row.get(name)) for row in rows)) for name in names]
        printer.table(columns, [[format_data(row.get(name)) for name in names] for row in rows])
    more = "; there are more, which --limit or --offset shows" if response["metadata"]["has_more"] else ""
    printer.line(f"{plural(len(rows), 'row')}{more}")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _call(call: Invocation) -> int:
    path = call.args.file
    where = "stdin" if path == "-" else path
    text = decode(call.stdin.buffer.read(), where) if path == "-" else read_text(path)
    request = parse_json(text, where)
    if not isinstance(request, dict):
        raise UsageError(f"{where} must hold one request, a JSON object")
    name = request.get("operation")
    needs_spark = not isinstance(name, str) or name.upper() not in WITHOUT_SPARK
    with call.connect(needs_spark) as connection:
        response = connection.send(request, body=_with_address(text, request, call.args))
    call.args.json = True
    return call.show(response)


def _with_address(text: str, request: Request, args: Args) -> bytes:
    """The text of a request, with tenant and namespace if it has none. Numbers stay as they are written."""
    more = {}
    if "tenant_id" not in request:
        more["tenant_id"] = single_tenant(args)
    elif args.tenant and request["tenant_id"] != args.tenant:
        raise UsageError(f"the request is about the tenant {request['tenant_id']!r}; leave --tenant out")
    if args.namespace and "namespace" not in request:
        more["namespace"] = args.namespace
    elif args.namespace and request["namespace"] != args.namespace:
        raise UsageError(f"the request is about the namespace {request['namespace']!r}; leave --namespace out")
    if not more:
        return text.encode()
    start = json.dumps(more)[:-1]
    return (f"{start}, {text.lstrip()[1:]}" if request else f"{start}}}").encode()


COMMANDS = (
    Command(
        "query",
        "Read rows of a table, or of several by SQL.",
        (
            argument("table", metavar="TABLE", nargs="?", help="the table; none with --sql"),
            argument("--columns", metavar="NAMES", help="only these columns, with commas"),
            argument("--where", metavar="FILTER", help="an expression such as 'amount > 10', or a filter in JSON"),
            argument("--sort", metavar="NAMES", help="sort by these columns, with commas, such as 'amount desc'"),
            flag("--distinct", "each row once"),
            argument("--limit", type=int, default=100, metavar="N", help="at most this many rows; 100"),
            argument("--offset", type=int, metavar="N", help="skip this many rows first"),
            argument("--as-of", metavar="TIME", help="the rows as they were at a time"),
            argument("--sql", metavar="SELECT", help="one SELECT over the tenant's tables"),
            repeated("--param", "NAME=VALUE", "a value for :name in --sql"),
            flag("--explain", "show Spark's plan, and read nothing"),
        ),
        examples.QUERY,
        request=_query,
        show=_show_rows,
        needs_spark=True,
    ),
    Command(
        "call",
        "Send a request from a file or stdin, and print the response.",
        (argument("file", metavar="FILE|-", help="a file with one JSON request; - for stdin"),),
        examples.CALL,
        run=_call,
        details="A request without a tenant_id gets that of --tenant, FIRN_TENANT or default.",
    ),
)
