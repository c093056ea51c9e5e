"""What a principal may do: the role that the operation needs, where the request needs it, and what policies allow."""

import asyncio
from dataclasses import replace

from service.guard.policies import Policies, sees_all
from service.model.call import Call
from service.operations.row_access import RowAccess
from service.pipeline.parse import Work


def authorise(call: Call, work: Work) -> None:
    """Raise Forbidden if the sender may not do this, before anything is read for it."""
    call.about(work.about)
    call.principal.check(work.access)


async def check_policy(call: Call, work: Work, policies: Policies) -> Work:
    """Raise Forbidden if a policy shows the sender only a part of the table, and the operation needs all of it.

    If it shows only visible rows, returns it without its key: the stored response may be from when the sender saw more.
    """
    name = work.about
    if not name.table or sees_all(call.principal, name):
        return work
    if work.rows is RowAccess.VISIBLE and work.key is not None:
        bound = await asyncio.to_thread(policies.is_bound, call.principal, name)
        return replace(work, key=None) if bound else work
    # Those that wait for nothing are many in a second.
    if work.rows is RowAccess.WHOLE and not (work.pool in ("inline", "queued") and policies.had_none(name)):
        await asyncio.to_thread(policies.check_whole, call.principal, name)
    return work
