"""`firn query` and `firn call`: rows for people, and any request."""

import json
from typing import Any

from service.cli.call import Call
from service.cli.command import Answer, Args, Command, Misused, Request, argument, flag, repeated
from service.cli.examples import queries as examples
from service.cli.files import from_json, read_text, scalar, text_of
from service.cli.page import Column, Page, count, datum
from service.cli.values import assignments, listed, tenant_of

# What is answered from metadata, or changes nothing else. Whatever is not here may need Spark.
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
    request: Request = {"operation": "QUERY", "tenant_id": tenant_of(args), "namespace": args.namespace or "default"}
    if args.sql and args.table:
        raise Misused("--sql names its tables itself; leave the table out")
    if not args.sql and not args.table:
        raise Misused("which table is not said; name it, or give --sql")
    if args.sql:
        request["sql"] = args.sql
        if args.param:
            said = assignments(args.param, "--param")
            request["params"] = {name: scalar(value, f"--param {name}") for name, value in said.items()}
    else:
        request |= {"table": args.table, **_parts(args)}
    request["limit"] = args.limit
    for name in ("offset", "as_of"):
        if getattr(args, name):
            request[name] = getattr(args, name)
    if args.explain:
        request["explain"] = True
    return request


def _parts(args: Args) -> Request:
    parts: Request = {}
    if args.columns:
        parts["projection"] = listed(args.columns)
    if args.where:
        parts["filter"] = _filter(args.where)
    if args.sort:
        parts["sort"] = [_order(name) for name in listed(args.sort)]
    if args.distinct:
        parts["distinct"] = True
    return parts


def _order(text: str) -> dict[str, str]:
    field, _, order = text.partition(" ")
    return {"field": field, "order": order.strip() or "asc"}


def _filter(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return {"expression": text}
    return from_json(text, "--where")


def _rows(answer: Answer, args: Args, page: Page) -> None:
    if answer.get("plan"):
        page.text(answer["plan"])
        return
    rows_table(answer["data"], page)
    more = "; there are more, which --limit or --offset shows" if answer["metadata"]["has_more"] else ""
    page.line(f"{count(len(answer['data']), 'row')}{more}")


def rows_table(rows: list[dict[str, Any]], page: Page) -> None:
    """Rows of data: numbers to the right, columns in the order they come."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return
    columns = [Column(name, right=all(_is_number(row.get(name)) for row in rows)) for name in names]
    page.table(columns, [[datum(row.get(name)) for name in names] for row in rows])


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _call(call: Call) -> int:
    """Send one request as it stands in a file."""
    path = call.args.file
    where = "what stands on stdin" if path == "-" else path
    raw = text_of(call.stdin.buffer.read(), where) if path == "-" else read_text(path)
    request = from_json(raw, where)
    if not isinstance(request, dict):
        raise Misused(f"{where} must hold one request, a JSON object")
    name = request.get("operation")
    spark = not isinstance(name, str) or name.upper() not in WITHOUT_SPARK
    with call.door(spark) as door:
        answer = door.ask(request, text=_addressed(raw, request, call.args))
    call.args.json = True
    return call.tell(answer)


def _addressed(raw: str, request: Request, args: Args) -> bytes:
    """The request's own text, with an address where it has none: numbers stay as they were written."""
    more = {}
    if "tenant_id" not in request:
        more["tenant_id"] = tenant_of(args)
    elif args.tenant and request["tenant_id"] != args.tenant:
        raise Misused(f"the request is about the tenant {request['tenant_id']!r}; leave --tenant out")
    if args.namespace and "namespace" not in request:
        more["namespace"] = args.namespace
    elif args.namespace and request["namespace"] != args.namespace:
        raise Misused(f"the request is about the namespace {request['namespace']!r}; leave --namespace out")
    if not more:
        return raw.encode()
    begins = json.dumps(more)[:-1]
    return (f"{begins}, {raw.lstrip()[1:]}" if request else f"{begins}}}").encode()


COMMANDS = (
    Command(
        "query",
        "Read rows of a table, or of several by SQL.",
        (
            argument("table", metavar="TABLE", nargs="?", help="the table; with --sql none"),
            argument("--columns", metavar="NAMES", help="only these columns, with commas"),
            argument("--where", metavar="FILTER", help="an expression such as 'amount > 10', or a filter in JSON"),
            argument("--sort", metavar="NAMES", help="by these columns, with commas, such as 'amount desc'"),
            flag("--distinct", "each row once"),
            argument("--limit", type=int, default=100, metavar="N", help="at most so many rows; 100"),
            argument("--offset", type=int, metavar="N", help="skip so many rows first"),
            argument("--as-of", metavar="TIME", help="the rows as they were at a time"),
            argument("--sql", metavar="SELECT", help="one SELECT over the tenant's tables"),
            repeated("--param", "NAME=VALUE", "a value for :name in --sql"),
            flag("--explain", "show Spark's plan, and read nothing"),
        ),
        examples.QUERY,
        request=_query,
        show=_rows,
        spark=True,
    ),
    Command(
        "call",
        "Send a request as it stands in a file, and print its answer.",
        (argument("file", metavar="FILE|-", help="a file with one JSON request; - for stdin"),),
        examples.CALL,
        run=_call,
        details="A request without a tenant_id is about --tenant, FIRN_TENANT or default.",
    ),
)
