"""`firn schedule run`: start a run of a schedule and follow it to its end."""

from service.cli.call import Invocation
from service.cli.command import FAILED, OK, Args, Command, Request, Response, argument, flag
from service.cli.connection.jobs import WaitInterrupted, poll
from service.cli.connection.remote import Connection
from service.cli.examples import schedules as examples
from service.cli.terminal.format import plural
from service.cli.terminal.printer import Printer
from service.cli.terminal.progress import OnProgress
from service.cli.values import single_tenant

NAME = argument("name", metavar="NAME", help="the schedule's name")
_RUNS = 10
"""How many of the latest runs to look at: others may start and end between two looks."""


def _run(call: Invocation) -> int:
    schedule = {"tenant_id": single_tenant(call.args), "name": call.args.name}
    with call.connect() as connection:
        response = connection.send({"operation": "RUN_SCHEDULE", **schedule, "wait": False})
        if call.args.no_wait or not response["success"]:
            return call.show(response)
        try:
            with call.progress(f"run {call.args.name}") as on_progress:
                response = _wait_for_run(connection, schedule, response, on_progress)
        except KeyboardInterrupt as e:
            raise WaitInterrupted(
                "the run goes on where a service runs; `firn schedule list` shows how it ended"
            ) from e
    code = call.show(response)
    return FAILED if code == OK and response["run"]["state"] != "done" else code


def _wait_for_run(connection: Connection, schedule: Request, started: Response, on_progress: OnProgress) -> Response:
    """The response to RUN_SCHEDULE with the run as it ended. No connection stays open for that."""
    run_id = started["run"]["run_id"]

    def look() -> Response | None:
        response = connection.send({"operation": "LIST_SCHEDULES", **schedule, "runs": _RUNS})
        if not response["success"]:
            return response
        runs = [run for each in response["schedules"] for run in each["runs"] if run["run_id"] == run_id]
        if not runs:
            message = f"the schedule {schedule['name']} was deleted while this run of it was in progress"
            return {"success": False, "error": {"code": "SCHEDULE_NOT_FOUND", "message": message}}
        run = runs[0]
        if run["ended_at"] is not None:
            return {**started, "run": run}
        phase = f"{run['done'] + run['failed'] + run['skipped']} of {plural(run['tables'], 'table')}"
        on_progress({"state": run["state"], "progress": {"phase": phase}})
        return None

    return poll(look, f"the run of {schedule['name']}")


def _show(response: Response, args: Args, printer: Printer) -> None:
    run = response["run"]
    if run["ended_at"] is None:
        printer.line(f"{'began' if response['started'] else 'was at it already'}: {plural(run['tables'], 'table')}")
        return
    printer.line(f"{run['state']}: {run['done']} done, {run['failed']} failed, {run['skipped']} skipped")
    if run["error"]:
        printer.line(f"  {run['error']}")
    for table in run["outcomes"]:
        reason = table["error"]["message"] if table["error"] else table["reason"]
        printer.line(f"  {table['namespace']}.{table['table']}: {table['state']}{f': {reason}' if reason else ''}")


COMMAND = Command(
    "schedule run",
    "Run a schedule now.",
    (NAME, flag("--no-wait", "do not wait for its end")),
    examples.RUN,
    run=_run,
    show=_show,
    needs_spark=True,
)
