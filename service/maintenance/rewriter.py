"""Rewrites groups of a table's files in parallel, for compactions and repartitions."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.engine.iceberg.compaction import sweep
from service.engine.session import tags
from service.engine.session.engine import Engine
from service.fairness.shares import for_same_tenant
from service.model.call import Call
from service.model.progress import RowProgress

log = logging.getLogger("firn.maintenance")
_LOOK_EVERY_S = 1.0  # whether it was cancelled


class FilesToRewrite(Protocol):
    """Files that are rewritten together."""

    @property
    def files(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def rows(self) -> int: ...


@dataclass
class RewriteProgress(RowProgress):
    """The progress of a job that rewrites files."""

    files_done: int = 0
    files_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0


G = TypeVar("G", bound=FilesToRewrite)
W = TypeVar("W")


@dataclass(eq=False)
class FileRewriter(Generic[G, W]):
    """Runs a recipe for groups of files, several at once. If a group or the caller fails, it cancels the others."""

    engine: Engine
    tag: str
    """The tag of the recipe's Spark jobs."""
    at_once: int
    call: Call
    progress: RewriteProgress
    fatal: tuple[type[Exception], ...] = (Exception,)
    """After one of these failures no other group is started."""
    _failure: Exception | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # One session is left for the commits, and one for reads and writes in the meantime.
        self.at_once = max(1, min(self.at_once, self.engine.sessions - 2))

    @contextmanager
    def rewriting(self, groups: Sequence[G], recipe: Callable[[G], W]) -> Iterator[Iterator[list[tuple[G, Future[W]]]]]:
        """Rewrite groups during the block, which iterates over lists, possibly empty, of the groups that have ended.
        Raises Cancelled if it was cancelled. The caller then keeps or deletes what other groups have written."""
        self.progress.files_total += sum(group.files for group in groups)
        self.progress.bytes_total += sum(group.bytes for group in groups)
        self.progress.expect(sum(group.rows for group in groups), partial(self.engine.rows_written, self.tag))
        with ThreadPoolExecutor(self.at_once, thread_name_prefix="firn-rewrite") as pool:
            running = {pool.submit(for_same_tenant(self._rewrite), recipe, group): group for group in groups}
            try:
                yield self._ended(running)
            except BaseException:
                for waiting in running:
                    waiting.cancel()
                self.engine.cancel(self.tag)
                while not all(future.done() for future in running):
                    wait(running, timeout=_LOOK_EVERY_S)
                    self.engine.cancel(self.tag)  # for a Spark job that started only now
                raise

    def sweep(self, commits: Commits, table: Table, folder: str, kept: Collection[str] = ()) -> bool:
        """Delete what the recipe wrote into its folder, except for some files; false if that failed."""
        try:
            current = commits.find(table.name, table.uuid)  # it may have been renamed
            self.engine.run(tags.settle, self.tag)
            self.engine.run(sweep, current.spark_name, folder, frozenset(kept))
        except Exception as e:  # the files only take space: the next recovery or CLEAN_ORPHANS deletes them
            log.warning("unfinished files of %s in %s could not be deleted: %s", table.name, folder, e)
            return False
        return True

    def _ended(self, running: dict[Future[W], G]) -> Iterator[list[tuple[G, Future[W]]]]:
        while running:
            self.call.check()
            done = wait(running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED).done
            ended = [(running.pop(future), future) for future in done]
            self.progress.files_done += sum(group.files for group, _ in ended)
            self.progress.bytes_done += sum(group.bytes for group, _ in ended)
            self.progress.done(sum(group.rows for group, _ in ended))
            yield ended

    def _rewrite(self, recipe: Callable[[G], W], group: G) -> W:
        self.call.check()
        if self._failure:  # the group was not cancelled in time
            raise self._failure
        try:
            return recipe(group)
        except Exception as e:
            self.call.check()  # a cancelled job can fail with any error
            if isinstance(e, self.fatal):
                self._failure = e
            raise
