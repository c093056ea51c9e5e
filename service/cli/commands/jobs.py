"""`firn job …`: list, show, await and cancel long-running work."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Request, Response, argument
from service.cli.connection.jobs import wait_for_job
from service.cli.examples import schedules as examples
from service.cli.terminal.format import format_size, format_time, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name, given_fields, single_tenant

_JOB = argument("job", metavar="JOB", help="the job's id, as `firn job list` shows it")


def _list(args: Args) -> Request:
    return {"operation": "LIST_JOBS", "tenant_id": single_tenant(args), **given_fields(args, "namespace", "limit")}


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    columns = [PageColumn("JOB", whole=True), PageColumn("STATE", whole=True), PageColumn("KIND")]
    columns += [PageColumn("TABLE", name=True), PageColumn("BEGUN", whole=True), PageColumn("ENDED", whole=True)]
    rows = [
        [
            job["id"],
            _state(job),
            job["kind"],
            full_name(job["table"]),
            format_time(job["created_at"]),
            format_time(job["ended_at"]),
        ]
        for job in response["jobs"]
    ]
    printer.table(columns, rows)
    more = "; there are older ones, which --limit shows" if response["has_more"] else ""
    printer.line(f"{plural(len(rows), 'job')}{more}")


def _state(job: dict[str, Any]) -> str:
    return "cancelling" if job.get("cancelling") else str(job["state"])


def _show(call: Invocation) -> int:
    with call.connect() as connection:
        response = connection.job(call.args.job)
    return call.show(response)


def _cancel(call: Invocation) -> int:
    with call.connect() as connection:
        response = connection.cancel(call.args.job)
    return call.show(response)


def _wait(call: Invocation) -> int:
    with call.connect() as connection, call.progress(f"job {call.args.job[:8]}") as on_progress:
        response = wait_for_job(connection, call.args.job, on_progress)
        if response["success"]:
            response = connection.job(call.args.job)
    return call.show(response)


def _show_job(response: Response, args: Args, printer: Printer) -> None:
    job = response["job"]
    progress = job["progress"] or {}
    pairs: dict[str, Any] = {
        "job": job["id"],
        "kind": job["kind"],
        "table": full_name(job["table"]),
        "state": _state(job),
        "phase": progress.get("phase"),
        "begun": format_time(job["created_at"]),
        "ended": format_time(job["ended_at"]) if "ended_at" in job else None,
    }
    if progress.get("bytes_total"):
        pairs["so far"] = f"{format_size(progress['bytes_done'])} of {format_size(progress['bytes_total'])}"
    if "error" in job:
        pairs["error"] = f"{job['error']['code']}: {job['error']['message']}"
    printer.pairs({name: value for name, value in pairs.items() if value is not None})


COMMANDS = (
    Command(
        "job list",
        "List jobs, the latest first.",
        (argument("--limit", type=int, metavar="N", help="at most this many; 100"),),
        examples.JOBS,
        request=_list,
        show=_show_list,
    ),
    Command("job show", "Show the progress of a job.", (_JOB,), examples.JOB, run=_show, show=_show_job),
    Command("job wait", "Wait until a job has ended.", (_JOB,), examples.WAIT, run=_wait, show=_show_job),
    Command("job cancel", "Cancel a job.", (_JOB,), examples.CANCEL, run=_cancel, show=_show_job),
)
