"""`firn schedule …`: create, list, run and delete schedules."""

from typing import Any

from service.cli.call import Invocation, failure
from service.cli.command import FAILED, OK, Args, Command, Request, Response, argument, flag
from service.cli.commands.tables import scope_options, show_items
from service.cli.connection.jobs import wait_for_job
from service.cli.connection.names import OF_TENANT
from service.cli.connection.remote import Connection
from service.cli.files import read_object
from service.cli.terminal.format import format_time, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.terminal.progress import OnProgress
from service.cli.values import named_table

_NAME = argument("name", "SCHEDULE", "the schedule's name")
_COLUMNS = (
    PageColumn("SCHEDULE", whole=True, value=lambda schedule: schedule["name"]),
    PageColumn("CRON", value=lambda schedule: schedule["cron"]),
    PageColumn("ZONE", value=lambda schedule: schedule["timezone"]),
    PageColumn("TABLES", name=True, value=lambda schedule: _tables(schedule)),
    PageColumn("NEXT", whole=True, value=lambda schedule: format_time(schedule.get("next_run_at"))),
    PageColumn("LAST RUN", value=lambda schedule: _last_run(schedule)),
)


def _show_created(response: Response, args: Args, printer: Printer) -> None:
    word = "replaced" if response["schedule_replaced"] else "created"
    next_run = response.get("next_run_at")
    due = f"it is due at {format_time(next_run)}, if a service runs then" if next_run else "it is not enabled"
    printer.line(f"{word} {args.name} for {plural(response['tables'], 'table')}; {due}")


def _tables(schedule: dict[str, Any]) -> str:
    return "all" if schedule["scope"] == "tenant" else f"{schedule['namespace']}.{schedule.get('table', '*')}"


def _last_run(schedule: dict[str, Any]) -> str:
    if "running" in schedule:
        return "running"
    return schedule["last_run"]["state"] if "last_run" in schedule else "-"


def _run(call: Invocation) -> int:
    request = call.request()
    with call.connect() as connection:
        response = connection.send(request)
        if call.args.no_wait or not response["success"]:
            return call.show(response)
        with call.progress(f"run {call.args.name}") as on_progress:
            response = _wait_for_run(connection, request, response, on_progress)
    code = call.show(response)
    return FAILED if code == OK and response["run"]["state"] != "done" else code


def _wait_for_run(connection: Connection, request: Request, started: Response, on_progress: OnProgress) -> Response:
    """The response to RUN_SCHEDULE with the run as it ended. No connection stays open for that."""

    def show(job: Response) -> None:
        run = job["progress"]
        phase = f"{run['done'] + run['failed'] + run['skipped']} of {plural(run['tables'], 'table')}"
        on_progress({**job, "progress": {"phase": phase}})

    response = wait_for_job(connection, started["job_id"], show)
    if not response["success"] and response["error"]["code"] == "NOT_FOUND":
        message = f"the schedule {request['name']} was deleted during this run"
        return {"success": False, "error": {"code": "SCHEDULE_NOT_FOUND", "message": message}}
    return response


def _show_run(response: Response, args: Args, printer: Printer) -> None:
    if "run" not in response:
        tables = plural(len(response["tables"]), "table")
        printer.line(f"{'started' if response['started'] else 'already running'}: {tables}")
        return
    run = response["run"]
    printer.line(f"{run['state']}: {run['done']} done, {run['failed']} failed, {run['skipped']} skipped")
    if "error" in run:
        printer.line(f"  {run['error']}")
    for table in run["outcomes"]:
        reason = table["error"]["message"] if "error" in table else table.get("reason")
        printer.line(f"  {table['namespace']}.{table['table']}: {table['state']}{f': {reason}' if reason else ''}")


def _check_delete(request: Request, connection: Connection) -> Response | None:
    """The response to deleting a schedule that does not exist."""
    name = {"tenant_id": request["tenant_id"], "name": request["name"]}
    listing = {"operation": "LIST_SCHEDULES", **name, **OF_TENANT}
    response = connection.send(listing)
    if not response["success"]:
        return response
    if response["schedules"]:
        return None
    if request.get("if_exists"):
        return {"success": True, "schedule_deleted": False, "schedule_existed": False}
    return failure("SCHEDULE_NOT_FOUND", f"there is no schedule {request['name']}; `firn schedule list` lists them")


COMMANDS = (
    Command(
        "schedule create",
        "Compact tables at the times of a cron expression.",
        (
            _NAME,
            argument("--cron", "EXPRESSION", "when, such as '0 2 * * *'", required=True),
            argument("--timezone", "ZONE", "an IANA time zone (default: UTC)"),
            argument("--delay", "TIME", "start this much later, such as 15m"),
            argument("--table", "TABLE", "only this table; without it, all tables of the namespace"),
            *scope_options("tables"),
            argument(
                "--task", "FILE", "a YAML or JSON file with the task (default: a plain COMPACT)", parse=read_object
            ),
            flag("--disabled", "do not run it at its times", "enabled", False),
            flag("--no-catch-up", "skip runs that were due while no service ran", "catch_up", False),
            flag("--replace", "replace a schedule of this name"),
        ),
        operation="CREATE_SCHEDULE",
        complete=lambda request, args: {**request, **(named_table(args.table, args) if args.table else {})},
        constants={"task": {"operation": "COMPACT"}},
        show=_show_created,
    ),
    Command(
        "schedule list",
        "List schedules.",
        scope_options("the schedules for tables"),
        operation="LIST_SCHEDULES",
        lists=("schedules",),
        show=show_items("schedule", _COLUMNS),
    ),
    Command(
        "schedule run",
        "Run a schedule now.",
        (_NAME, flag("--no-wait", "do not wait until it has ended", None)),
        operation="RUN_SCHEDULE",
        constants={"wait": False},
        run=_run,
        show=_show_run,
    ),
    Command(
        "schedule delete",
        "Delete a schedule.",
        (_NAME, flag("--if-exists", "do nothing if the schedule does not exist")),
        operation="DELETE_SCHEDULE",
        check=_check_delete,
        question=lambda request: f"The schedule {request['name']} and the records of its runs are deleted.",
        show=lambda response, args, printer: printer.line(
            "deleted" if response["schedule_deleted"] else f"{args.name} does not exist"
        ),
    ),
)
