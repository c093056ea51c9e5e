"""`firn schedule run`: a run of a schedule, followed to its end."""

from service.cli.call import Call
from service.cli.command import FAILED, INTERRUPTED, WELL, Answer, Args, Command, Request, argument, flag
from service.cli.examples import schedules as examples
from service.cli.page import Page, count
from service.cli.remote import Door
from service.cli.values import tenant_of
from service.cli.work import Watch, look_until

NAME = argument("name", metavar="NAME", help="the schedule's name")
_LOOKED_AT = 10
"""How many runs may have begun and ended between two looks."""


def _run(call: Call) -> int:
    schedule = {"tenant_id": tenant_of(call.args), "name": call.args.name}
    with call.door() as door:
        answer = door.ask({"operation": "RUN_SCHEDULE", **schedule, "wait": False})
        if call.args.no_wait or not answer["success"]:
            return call.tell(answer)
        try:
            with call.watching(f"run {call.args.name}") as watch:
                answer = _followed(door, schedule, answer, watch)
        except KeyboardInterrupt:
            call.say("the run goes on where a service runs; `firn schedule list` shows how it ended")
            return INTERRUPTED
    told = call.tell(answer)
    return FAILED if told == WELL and answer["run"]["state"] != "done" else told


def _followed(door: Door, schedule: Request, begun: Answer, watch: Watch) -> Answer:
    """The answer with the run as it ended; no connection is kept open for that."""
    run_id = begun["run"]["run_id"]

    def look() -> Answer | None:
        answer = door.ask({"operation": "LIST_SCHEDULES", **schedule, "runs": _LOOKED_AT})
        if not answer["success"]:
            return answer
        runs = [run for each in answer["schedules"] for run in each["runs"] if run["run_id"] == run_id]
        if not runs:
            message = f"the schedule {schedule['name']} was deleted while this run of it was under way"
            return {"success": False, "error": {"code": "SCHEDULE_NOT_FOUND", "message": message}}
        run = runs[0]
        if run["ended_at"] is not None:
            return {**begun, "run": run}
        phase = f"{run['done'] + run['failed'] + run['skipped']} of {count(run['tables'], 'table')}"
        watch({"state": run["state"], "progress": {"phase": phase}})
        return None

    return look_until(look, f"the run of {schedule['name']}")


def _ran(answer: Answer, args: Args, page: Page) -> None:
    run = answer["run"]
    if run["ended_at"] is None:
        page.line(f"{'began' if answer['started'] else 'was at it already'}: {count(run['tables'], 'table')}")
        return
    page.line(f"{run['state']}: {run['done']} done, {run['failed']} failed, {run['skipped']} skipped")
    if run["error"]:
        page.line(f"  {run['error']}")
    for told in run["outcomes"]:
        why = told["error"]["message"] if told["error"] else told["reason"]
        page.line(f"  {told['namespace']}.{told['table']}: {told['state']}{f': {why}' if why else ''}")


COMMAND = Command(
    "schedule run",
    "Run a schedule now.",
    (NAME, flag("--no-wait", "do not wait for its end")),
    examples.RUN,
    run=_run,
    show=_ran,
    spark=True,
)
