"""`firn job …`: long work, looked after."""

from typing import Any

from service.cli.call import Call
from service.cli.command import INTERRUPTED, Answer, Args, Command, Request, argument
from service.cli.examples import schedules as examples
from service.cli.page import Column, Page, count, moment, size
from service.cli.values import full_name, tenant_of
from service.cli.work import Left, wait_for

JOB = argument("job", metavar="JOB", help="the job's id, as `firn job list` has it")


def _list(args: Args) -> Request:
    wishes = {"namespace": args.namespace, "limit": args.limit}
    said = {name: value for name, value in wishes.items() if value is not None}
    return {"operation": "LIST_JOBS", "tenant_id": tenant_of(args), **said}


def _listed(answer: Answer, args: Args, page: Page) -> None:
    columns = [Column("JOB", whole=True), Column("STATE", whole=True), Column("KIND"), Column("TABLE", name=True)]
    page.table(
        [*columns, Column("BEGUN", whole=True), Column("ENDED", whole=True)],
        [
            [j["id"], _state(j), j["kind"], full_name(j["table"]), moment(j["created_at"]), moment(j["ended_at"])]
            for j in answer["jobs"]
        ],
    )
    more = "; there are older ones, which --limit shows" if answer["has_more"] else ""
    page.line(f"{count(len(answer['jobs']), 'job')}{more}")


def _state(job: dict[str, Any]) -> str:
    return "cancelling" if job.get("cancelling") else str(job["state"])


def _show_job(call: Call) -> int:
    with call.door() as door:
        answer = door.job(call.args.job)
    return call.tell(answer)


def _cancel_job(call: Call) -> int:
    with call.door() as door:
        answer = door.cancel(call.args.job)
    return call.tell(answer)


def _wait_for_job(call: Call) -> int:
    with call.door() as door, call.watching(f"job {call.args.job[:8]}") as watch:
        try:
            ended = wait_for(door, call.args.job, watch)
        except Left:
            return INTERRUPTED
        answer = door.job(call.args.job) if ended["success"] else ended
    return call.tell(answer)


def _job(answer: Answer, args: Args, page: Page) -> None:
    job = answer["job"]
    progress = job["progress"] or {}
    pairs: dict[str, Any] = {
        "job": job["id"],
        "kind": job["kind"],
        "table": full_name(job["table"]),
        "state": _state(job),
        "phase": progress.get("phase"),
        "begun": moment(job["created_at"]),
        "ended": moment(job["ended_at"]) if "ended_at" in job else None,
    }
    if progress.get("bytes_total"):
        pairs["so far"] = f"{size(progress['bytes_done'])} of {size(progress['bytes_total'])}"
    if "error" in job:
        pairs["error"] = f"{job['error']['code']}: {job['error']['message']}"
    page.pairs({name: value for name, value in pairs.items() if value is not None})


COMMANDS = (
    Command(
        "job list",
        "List jobs, the latest first.",
        (argument("--limit", type=int, metavar="N", help="at most so many; 100"),),
        examples.JOBS,
        request=_list,
        show=_listed,
    ),
    Command("job show", "Show how far a job is.", (JOB,), examples.JOB, run=_show_job, show=_job),
    Command("job wait", "Wait for the end of a job.", (JOB,), examples.WAIT, run=_wait_for_job, show=_job),
    Command("job cancel", "Call a job off.", (JOB,), examples.CANCEL, run=_cancel_job, show=_job),
)
