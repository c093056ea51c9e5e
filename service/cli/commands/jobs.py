"""`firn job …`: list, show, await and cancel long-running work."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Response, argument, number
from service.cli.commands.tables import scope_options, show_items
from service.cli.connection.jobs import wait_for_job
from service.cli.terminal.format import format_time
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.terminal.progress import describe
from service.cli.values import full_name

_JOB = argument("job", "JOB", "the job's id, as `firn job list` shows it")
_COLUMNS = (
    PageColumn("JOB", whole=True, value=lambda job: job["id"]),
    PageColumn("STATE", whole=True, value=lambda job: _state(job)),
    PageColumn("KIND", value=lambda job: job["kind"]),
    PageColumn("TABLE", name=True, value=lambda job: full_name(job["table"])),
    PageColumn("STARTED", whole=True, value=lambda job: format_time(job["created_at"])),
    PageColumn("ENDED", whole=True, value=lambda job: format_time(job.get("ended_at"))),
)


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


def _tables(place: dict[str, str]) -> str:
    """A job's table; the run of a schedule may cover a namespace or a tenant."""
    return f"{place.get('namespace', '*')}.{place.get('table', '*')}"


def _show_job(response: Response, args: Args, printer: Printer) -> None:
    job = response["job"]
    progress, error = job["progress"] or {}, job.get("error")
    printer.pairs(
        {
            "job": job["id"],
            "kind": job["kind"],
            "table": _tables(job["table"]),
            "state": _state(job),
            "phase": progress.get("phase"),
            "started": format_time(job["created_at"]),
            "ended": format_time(job["ended_at"]) if "ended_at" in job else None,
            "progress": describe(progress) or None,
            "error": f"{error['code']}: {error['message']}" if error else None,
        }
    )


COMMANDS = (
    Command(
        "job list",
        "List jobs, the latest first.",
        (number("--limit", "show at most this many (default: all)"), *scope_options("the jobs")),
        lists=("jobs",),
        operation="LIST_JOBS",
        show=show_items("job", _COLUMNS, "; there are older ones, use --limit to see more"),
    ),
    Command("job show", "Show the progress of a job.", (_JOB,), run=_show, show=_show_job),
    Command("job wait", "Wait until a job has ended.", (_JOB,), run=_wait, show=_show_job),
    Command("job cancel", "Cancel a job.", (_JOB,), run=_cancel, show=_show_job),
)
