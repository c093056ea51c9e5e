"""What a principal may do: the role that the operation needs, where the request needs it."""

from service.model.call import Call
from service.pipeline.parse import Work


def authorise(call: Call, work: Work) -> None:
    """Raise Forbidden if the sender may not do this, before anything is read for it."""
    call.about(work.about)
    call.principal.check(work.access)
