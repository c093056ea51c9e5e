"""What a principal may do: the role that the operation needs, where the request needs it, and what policies allow."""

import asyncio

from service.guard.policies import Policies, sees_all
from service.model.call import Call
from service.pipeline.parse import Work


def authorise(call: Call, work: Work) -> None:
    """Raise Forbidden if the sender may not do this, before anything is read for it."""
    call.about(work.about)
    call.principal.check(work.access)


async def check_policy(call: Call, work: Work, policies: Policies) -> None:
    """Raise Forbidden if a policy shows the sender only a part of the table, and the operation needs all of it."""
    name = work.about
    if work.needs_whole is None or not name.table or sees_all(call.principal, name):
        return
    # These wait for nothing, and many come in a second.
    if work.pool in ("inline", "queued") and policies.had_none(name):
        return
    await asyncio.to_thread(policies.check_whole, call.principal, name, work.needs_whole)
