"""The engine of the process for queries."""

import threading
from contextlib import suppress

from service.engine.queries.warm import touch
from service.engine.session import jvm
from service.engine.session.cancellation import cancel_now
from service.engine.session.engine import Engine, Supervisor
from service.engine.session.heap import heap_samples, watch

# The code with which Java exits (ExitOnOutOfMemoryError).
OUT_OF_MEMORY = 3


class QuerySpark(Engine):
    """Spark for queries only."""

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._watch_heap, name="firn-heap", daemon=True).start()

    def _watch_heap(self) -> None:
        supervisor = self._supervisor
        if supervisor is not None:
            with suppress(Exception):  # the JVM has ended
                watch(heap_samples(), lambda: supervisor.ended(OUT_OF_MEMORY))

    def cancel_stubborn(self, tag: str) -> None:
        """Cancel the jobs with a tag; if their tasks do not end, the supervisor is told."""
        root = self._root
        if root is not None and self._supervisor is not None:
            cancel_now(root.sparkContext, tag, self._supervisor.stuck)

    def warm(self, table: str) -> None:
        self.run_on_all(lambda session: touch(session, table))

    def answers(self) -> bool:
        """Whether the JVM responds."""
        return jvm.answers()

    def discard(self) -> None:
        """Kill the JVM and remove its files."""
        jvm.discard(self._conf)


def query_spark(conf: dict[str, str], sessions: int, start_wait_s: float, supervisor: Supervisor) -> QuerySpark:
    return QuerySpark(conf, sessions, start_wait_s, supervisor=supervisor)
