"""What a principal may do. Today every principal may do everything."""

from service.model.call import Principal
from service.pipeline.parse import Work


def authorise(principal: Principal, work: Work) -> None:
    """Raise if the principal may not do this."""
