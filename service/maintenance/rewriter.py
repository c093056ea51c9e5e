"""Groups of a table's files rewritten side by side, as a recipe says; for compactions and repartitions alike."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from service.catalog.tables import Table
from service.engine.iceberg.compaction import sweep
from service.engine.session import tags
from service.engine.session.engine import Engine
from service.model.call import Call

_LOOK_EVERY_S = 1.0  # whether it was cancelled


class FilesToRewrite(Protocol):
    """Files that are rewritten together."""

    @property
    def files(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class RewriteProgress(Protocol):
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


G = TypeVar("G", bound=FilesToRewrite)
W = TypeVar("W")


class FileRewriter(Generic[G, W]):
    """Runs a recipe for groups of files, several at once, and cancels what runs if one of them or the caller fails."""

    def __init__(
        self,
        engine: Engine,
        tag: str,
        at_once: int,
        call: Call,
        progress: RewriteProgress,
        fatal: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """`tag` is that of the recipe's Spark jobs. After a failure that is `fatal`, no other group is begun."""
        # One session is left for the commits, and one for those who read and write in the meantime.
        self.at_once = max(1, min(at_once, engine.sessions - 2))
        self._engine = engine
        self._tag = tag
        self._call = call
        self._progress = progress
        self._fatal = fatal
        self._failure: Exception | None = None

    @contextmanager
    def rewriting(self, groups: Sequence[G], recipe: Callable[[G], W]) -> Iterator[Iterator[list[tuple[G, Future[W]]]]]:
        """Rewrite groups during the block, which reads those that have ended from time to time; perhaps none.

        Raises Cancelled if it was cancelled. What other groups have made then is the caller's to keep.
        """
        self._progress.files_total += sum(group.files for group in groups)
        self._progress.bytes_total += sum(group.bytes for group in groups)
        with ThreadPoolExecutor(self.at_once, thread_name_prefix="firn-rewrite") as pool:
            running = {pool.submit(self._rewrite, recipe, group): group for group in groups}
            try:
                yield self._ended(running)
            except BaseException:
                for waiting in running:
                    waiting.cancel()
                self.cancel()
                while not all(future.done() for future in running):
                    wait(running, timeout=_LOOK_EVERY_S)
                    self.cancel()  # for a Spark job that began only now
                raise

    def cancel(self) -> None:
        """Cancel the recipe's Spark jobs."""
        self._engine.cancel(self._tag)

    def sweep(self, table: Table, folder: str, kept: Collection[str] = ()) -> None:
        """Delete what the recipe wrote into its folder, but for some files."""
        self._engine.run(tags.settle, self._tag)
        self._engine.run(sweep, table.spark_name, folder, frozenset(kept))

    def _ended(self, running: dict[Future[W], G]) -> Iterator[list[tuple[G, Future[W]]]]:
        while running:
            self._call.check()
            done = wait(running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED).done
            ended = [(running.pop(future), future) for future in done]
            self._progress.files_done += sum(group.files for group, _ in ended)
            self._progress.bytes_done += sum(group.bytes for group, _ in ended)
            yield ended

    def _rewrite(self, recipe: Callable[[G], W], group: G) -> W:
        self._call.check()
        if self._failure:  # the group was not cancelled in time
            raise self._failure
        try:
            return recipe(group)
        except Exception as e:
            self._call.check()  # a job that was cancelled fails with anything
            if isinstance(e, self._fatal):
                self._failure = e
            raise
