"""Work that takes a while: begun as a job, asked after until it ends, shown as it goes."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from service.cli.command import Answer, Request
from service.cli.remote import Door

_LONGEST_S = 6 * 3600
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.25, 5.0
Watch = Callable[[dict[str, Any]], None]


class Left(KeyboardInterrupt):
    """Whoever waited for a job was interrupted; it goes on."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id


def have_done(
    door: Door, request: Request, watch: Watch = lambda job: None, pause: Callable[[float], None] = time.sleep
) -> Answer:
    """The answer, once what is asked for is done; no connection is kept open for that."""
    # Should the answer be lost, the same request does not begin another job.
    begun = door.ask({**request, "async": True, "idempotency_key": f"firn-{secrets.token_hex(16)}"})
    if not begun["success"] or "job_id" not in begun:  # what was done at once has no job
        return begun
    return wait_for(door, begun["job_id"], watch, pause)


def wait_for(
    door: Door, job_id: str, watch: Watch = lambda job: None, pause: Callable[[float], None] = time.sleep
) -> Answer:
    """The answer of a job, once it has ended."""

    def look() -> Answer | None:
        answer = door.job(job_id)
        if not answer["success"]:
            return answer
        job = answer["job"]
        if "result" in job:
            result: Answer = job["result"]
            return result
        if "error" in job:
            return {"success": False, "error": job["error"]}
        watch(job)
        return None

    try:
        return look_until(look, f"job {job_id}", pause)
    except KeyboardInterrupt as e:
        raise Left(job_id) from e


def look_until(look: Callable[[], Answer | None], what: str, pause: Callable[[float], None] = time.sleep) -> Answer:
    """What a look finds that is looked again and again, ever more seldom; after some hours that it found nothing."""
    rest, waited = _FIRST_LOOK_S, 0.0
    while (found := look()) is None:
        if waited >= _LONGEST_S:
            told = {"code": "TIMEOUT", "message": f"{what} has not ended in {_LONGEST_S // 3600} hours"}
            return {"success": False, "error": told}
        pause(rest)
        waited, rest = waited + rest, min(1.5 * rest, _LOOK_EVERY_S)
    return found
