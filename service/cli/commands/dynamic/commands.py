"""The commands of `firn dynamic`, and what they send."""

from service.cli.call import Invocation
from service.cli.command import (
    FAILED,
    OK,
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
from service.cli.commands.dynamic.shown import (
    show_altered,
    show_audited,
    show_created,
    show_description,
    show_dropped,
    show_explained,
    show_graph,
    show_history,
    show_list,
    show_refreshed,
)
from service.cli.commands.tables import DRY_RUN, scope_options, table_command
from service.cli.connection.jobs import run_as_job
from service.cli.connection.remote import Connection
from service.cli.files import read_input
from service.cli.values import address_of, full_name, named_table

_PERCENT = ("sample_percent", float)
_STATES = ("active", "suspended", "failed")


def _create(call: Invocation) -> int:
    request = {**call.request(), "sql": read_input(call.args.file, call.stdin)[0]}
    if call.args.namespace:
        request["namespace"] = call.args.namespace
    with call.connect() as connection, call.progress("create") as on_progress:
        if request.get("dry_run"):
            response = connection.send(request)
        else:
            response = run_as_job(connection, request, on_progress, cancels=True)
    return call.show(response)


def _audit(call: Invocation) -> int:
    request = call.request()
    with call.connect() as connection, call.progress(f"audit {full_name(request)}") as on_progress:
        response = run_as_job(connection, request, on_progress, cancels=True)
    code = call.show(response)
    differs = code == OK and not response["matches"] and not response["repaired"]
    return FAILED if differs else code


def _explain(call: Invocation) -> int:
    request, args = call.request(), call.args
    if (args.table is None) == (args.file is None):
        raise UsageError("name a dynamic table, or give a query by --file; one of them")
    if args.table is None:
        request |= {"query": read_input(args.file, call.stdin)[0]}
        request |= {"namespace": args.namespace} if args.namespace else {}
    else:
        request |= named_table(args.table, args)
    with call.connect() as connection:
        return call.show(connection.send(request))


def _check_drop(request: Request, connection: Connection) -> Response | None:
    """The response to dropping a table that cannot be dropped, or does not exist; else None."""
    described = connection.send({"operation": "DESCRIBE_DYNAMIC_TABLE", **address_of(request), "refreshes": 0})
    if not described["success"]:
        missing = described["error"]["code"] == "TABLE_NOT_FOUND" and request.get("if_exists")
        nothing = {"success": True, "table_dropped": False, "table_existed": False, "purged": False, "dropped": []}
        return nothing if missing else described
    if described.get("dynamic_table", {}).get("dependents") and not request.get("cascade"):
        return connection.send({**request, "confirm": True})  # it is refused, and says why
    return None


def _history(request: Request, args: Args) -> Request:
    named = named_table(args.table, args) if args.table else {}
    if args.table and request.get("scope"):
        raise UsageError("a table is in one namespace; leave --all-namespaces out")
    return {**request, **named}


COMMANDS = (
    Command(
        "dynamic create",
        "Declare a table as the result of a query, and build it.",
        (
            argument(
                "--file",
                "FILE",
                "a file with CREATE DYNAMIC TABLE …; - for the standard input",
                None,
                short="-f",
                required=True,
            ),
            DRY_RUN,
            flag("--although-read", "also take away columns that other dynamic tables read", "confirm"),
        ),
        operation="CREATE_DYNAMIC_TABLE",
        run=_create,
        show=show_created,
        details="CREATE OR REPLACE DYNAMIC TABLE replaces the query of a table; --dry-run shows what it would rebuild.",
    ),
    Command(
        "dynamic list",
        "List dynamic tables, with their states and lags.",
        (*scope_options("the dynamic tables"), argument("--state", None, "only those in this state", choices=_STATES)),
        operation="LIST_DYNAMIC_TABLES",
        lists=("dynamic_tables",),
        show=show_list,
    ),
    table_command(
        "dynamic describe",
        "Show the definition, the state and the last refreshes of a dynamic table.",
        number("--refreshes", "how many of the last refreshes to show (default: 10)"),
        operation="DESCRIBE_DYNAMIC_TABLE",
        show=show_description,
    ),
    Command(
        "dynamic explain",
        "Show how a dynamic table, or a query, would be refreshed.",
        (
            argument("table", "TABLE", "a dynamic table", None, nargs="?"),
            argument("--file", "FILE", "a file with a query; - for the standard input", None, short="-f"),
            repeated("--changed", "SOURCE", "show the plan for changes of this source"),
        ),
        operation="EXPLAIN_DYNAMIC_TABLE",
        run=_explain,
        show=show_explained,
    ),
    table_command(
        "dynamic refresh",
        "Bring a dynamic table up to date, and first all that it depends on.",
        flag("--cascade", "also refresh the dynamic tables that depend on it"),
        operation="REFRESH_DYNAMIC_TABLE",
        job=True,
        cancels=True,
        show=show_refreshed,
    ),
    table_command(
        "dynamic audit",
        "Compare the rows of a dynamic table with those of its query.",
        argument("--sample", "PERCENT", "compare only the rows of so many percent of the keys", *_PERCENT),
        number("--seed", "choose the same keys as an earlier audit"),
        flag("--repair", "replace the rows that differ"),
        operation="AUDIT_DYNAMIC_TABLE",
        run=_audit,
        show=show_audited,
        details="It fails, with exit code 1, if rows differ and are not repaired.",
    ),
    table_command(
        "dynamic alter",
        "Change the target lag of a dynamic table, suspend it, or resume it.",
        argument("--lag", "LAG", "the target lag, such as '5 minutes', or downstream", "target_lag"),
        argument(
            "--scheduler", None, "whether the worker refreshes it", parse=str.upper, choices=("enabled", "disabled")
        ),
        flag("--suspend", "stop refreshing it"),
        flag("--resume", "refresh it again"),
        argument("--reason", "TEXT", "why it is suspended"),
        operation="ALTER_DYNAMIC_TABLE",
        show=show_altered,
    ),
    table_command(
        "dynamic drop",
        "Drop a dynamic table. It can be restored unless its files are deleted.",
        flag("--cascade", "also drop the dynamic tables that depend on it"),
        flag("--purge", "delete its files, for good"),
        flag("--if-exists", "do nothing if the table does not exist"),
        operation="DROP_DYNAMIC_TABLE",
        constants={"confirm": True},  # the question, or --yes, is the confirmation
        check=_check_drop,
        question=lambda request: f"The dynamic table {full_name(request)} is dropped.",
        show=show_dropped,
    ),
    Command(
        "dynamic history",
        "List the refreshes of dynamic tables, newest first.",
        (
            argument("table", "TABLE", "only this dynamic table", None, nargs="?"),
            *scope_options("refreshes"),
            argument("--state", None, "only those in this state", choices=("running", "done", "failed")),
            argument("--since", "TIME", "only those that started at this time or later"),
            number("--limit", "how many to list (default: 100)"),
        ),
        operation="REFRESH_HISTORY",
        complete=_history,
        lists=("refreshes",),
        show=show_history,
    ),
    Command(
        "dynamic graph",
        "Draw which dynamic tables read which tables.",
        scope_options("the dynamic tables"),
        operation="LIST_DYNAMIC_TABLES",
        lists=("dynamic_tables",),
        show=show_graph,
    ),
)
