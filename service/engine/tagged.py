"""Spark jobs that can be cancelled from another thread, and no others with them."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

OnCancel = Callable[[Callable[[], object]], object]


@contextmanager
def cancellable(session: SparkSession, on_cancel: OnCancel) -> Iterator[None]:
    """Have the Spark jobs that this thread starts during the block cancelled when what `on_cancel` is given is called.

    Those that begin after the call run on: whoever starts several looks between them.
    """
    context, tag = session.sparkContext, f"firn-{uuid.uuid4().hex}"
    ended = False

    def cancel() -> None:
        if not ended:
            context.cancelJobsWithTag(tag)

    context.addJobTag(tag)
    try:
        on_cancel(cancel)
        yield
    finally:
        ended = True
        context.removeJobTag(tag)
