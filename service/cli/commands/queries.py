"""`firn query`: rows for people; and `firn call`: any request."""

import json
from typing import Any

from service.cli.call import Invocation, send_request
from service.cli.command import (
    FORMATS,
    OK,
    WITHOUT_SPARK,
    Args,
    Command,
    Request,
    Response,
    UsageError,
    argument,
    flag,
    number,
    repeated,
)
from service.cli.commands.tables import STATE, TABLE, filter_option
from service.cli.files import parse_json, parse_value, read_input, table_address
from service.cli.terminal.format import format_data, plural
from service.cli.terminal.printer import Printer, data_columns
from service.cli.values import named_table, parse_assignments, single_tenant, split_list


def _complete_query(request: Request, args: Args) -> Request:
    if args.sql and args.table:
        raise UsageError("--sql names its tables itself; leave the table out")
    if not args.sql and not args.table:
        raise UsageError("no table is given; name one, or use --sql")
    ignored = ("projection", "filter", "sort", "distinct") if args.sql else ("params",)
    fields = {name: value for name, value in request.items() if name not in ignored}
    table = named_table(args.table, args) if args.table else {}
    return {**fields, "namespace": args.namespace or "default", **table}


def _parse_sort(text: str) -> list[dict[str, str]]:
    fields = (name.partition(" ") for name in split_list(text))
    return [{"field": field, "order": order.strip() or "asc"} for field, _, order in fields]


def _parse_params(pairs: list[str]) -> dict[str, Any]:
    values = parse_assignments(pairs, "--param")
    return {name: parse_value(value, f"--param {name}") for name, value in values.items()}


def show_rows(response: Response, args: Args, printer: Printer) -> None:
    if response.get("plan"):
        printer.text(response["plan"])
        return
    rows = _show_data(response, printer)
    printer.line(f"{plural(len(rows), 'row')}{_more(response, ' or --offset')}")


def _show_data(response: Response, printer: Printer) -> list[dict[str, Any]]:
    """Print the rows of a response as a table, and return them."""
    rows: list[dict[str, Any]] = response["data"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        printer.table(data_columns(names, rows), [[format_data(row.get(name)) for name in names] for row in rows])
    return rows


def _more(response: Response, option: str = "") -> str:
    return f"; there are more, use --limit{option} to see them" if response["metadata"]["has_more"] else ""


def _table_query(call: Invocation) -> int:
    """Read rows of a table by SQL, as text or as a Parquet file."""
    if call.args.output != "parquet":
        return send_request(call)
    if call.stdout.isatty():
        raise UsageError("a Parquet file is not for a terminal; redirect it: … -o parquet > rows.parquet")
    with call.connect() as connection:
        received = connection.fetch(call.request(), "application/vnd.apache.arrow.stream")
    if isinstance(received, dict):
        call.args.output = None
        return call.show(received)
    call.stdout.flush()
    call.stdout.buffer.write(_to_parquet(received))
    call.stdout.flush()
    return OK


def _to_parquet(stream: bytes) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = pa.BufferOutputStream()
    pq.write_table(pa.ipc.open_stream(stream).read_all(), written, compression="zstd")
    content: bytes = written.getvalue().to_pybytes()
    return content


def _complete_table_query(request: Request, args: Args) -> Request:
    """The request without the table if it is SQL, which names its tables in the namespace of the table."""
    return {name: value for name, value in request.items() if name != "table"} if "sql" in request else request


def _show_returned(response: Response, args: Args, printer: Printer) -> None:
    rows = _show_data(response, printer)
    printer.success(f"{plural(len(rows), 'row')} returned{_more(response)}")


def _call(call: Invocation) -> int:
    text, where = read_input(call.args.file, call.stdin)
    request = parse_json(text, where)
    if not isinstance(request, dict):
        raise UsageError(f"{where} must contain one request, a JSON object")
    name = request.get("operation")
    needs_spark = not isinstance(name, str) or name.upper() not in WITHOUT_SPARK
    with call.connect(needs_spark) as connection:
        response = connection.send(request, body=_with_address(text, request, call.args))
    call.args.output = call.args.output or "json"
    return call.show(response)


def _with_address(text: str, request: Request, args: Args) -> bytes:
    """The text of a request, with tenant and namespace if it has none. Numbers stay as they are written."""
    for field, option in (("tenant_id", "tenant"), ("namespace", "namespace")):
        given = getattr(args, option)
        if given and request.get(field, given) != given:
            raise UsageError(f"the request is about the {option} {request[field]!r}; leave --{option} out")
    more = {}
    if "tenant_id" not in request:
        more["tenant_id"] = single_tenant(args)
    if args.namespace and "namespace" not in request:
        more["namespace"] = args.namespace
    if not more:
        return text.encode()
    start = json.dumps(more)[:-1]
    return (f"{start}, {text.lstrip()[1:]}" if request else f"{start}}}").encode()


COMMANDS = (
    Command(
        "query",
        "Read rows of a table, or of several by SQL.",
        (
            argument("table", "TABLE", "the table; none with --sql", nargs="?"),
            argument("--columns", "NAMES", "only these columns, separated by commas", "projection", split_list),
            filter_option("--where", "an expression such as 'amount > 10', or JSON", "filter"),
            argument("--sort", "NAMES", "sort by these columns, such as 'amount desc, id'", parse=_parse_sort),
            flag("--distinct", "leave out duplicate rows"),
            number("--limit", "show at most this many rows (default: 100)", default=100),
            number("--offset", "skip this many rows first"),
            argument("--cursor", "CURSOR", "the rows after an earlier page: its next_cursor, as --json shows it"),
            argument("--as-of", "STATE", f"the rows as they were: {STATE}"),
            argument("--sql", "SELECT", "one SELECT over the tenant's tables"),
            repeated("--param", "NAME=VALUE", "a value for :name in --sql", "params", _parse_params),
            flag("--explain", "show Spark's plan, and read nothing"),
        ),
        operation="QUERY",
        complete=_complete_query,
        show=show_rows,
    ),
    Command(
        "table query",
        "Read rows of a table, or run a SELECT over the tables of its namespace.",
        (
            TABLE,
            argument("sql", "SELECT", "one SELECT (default: all columns of the table)", nargs="?"),
            number("--limit", "show at most this many rows (default: 100)", default=100),
            argument(
                "--output",
                None,
                "how to print the rows (default: table)",
                None,
                short="-o",
                choices=(*FORMATS, "parquet"),
            ),
        ),
        operation="QUERY",
        address=table_address,
        complete=_complete_table_query,
        run=_table_query,
        show=_show_returned,
        details="-o parquet writes a Parquet file to stdout.",
    ),
    Command(
        "call",
        "Send a request from a file or stdin, and print the response.",
        (argument("file", "FILE|-", "a file with one JSON request; - for stdin"),),
        run=_call,
        details="A request without a tenant_id gets that of --tenant, FIRN_TENANT or default.",
    ),
)
