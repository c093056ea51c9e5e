"""The moments in a WRITE's way at which a kill hurts most, each reached from outside and proved on disk.

A point is a context: inside it a batch stands at that moment and stays there; after the kill, still inside,
its `proof` says whether that is where it was hit.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from service.model import wire
from tests.faults.evidence import Disk, locked, locked_between_batches
from tests.faults.process import Process
from tests.faults.proxy import Proxy
from tests.harness import wait_until

REACHED_S = 25  # less than the service waits for a database that we hold
EVERY_S = 0.002
LOST_ANSWERS = 12  # more than those who give up


class NotReached(Exception):
    """The service was not where it should have been hit; what came of it counts all the same."""


@dataclass(frozen=True)
class Scene:
    """A service under load."""

    process: Process
    proxy: Proxy
    disk: Disk


@dataclass(frozen=True)
class Point:
    """How to reach a moment, with a batch in it, and how to see afterwards that it was the one."""

    name: str
    reach: Callable[[Scene], AbstractContextManager[str]]
    proof: Callable[[Scene, str], bool]
    comes_to: str
    """What the ledger must say of the batch in the end."""

    def __str__(self) -> str:
        return self.name


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """A process that does nothing meanwhile; it may end meanwhile."""
    os.kill(process, signal.SIGSTOP)
    try:
        wait_until(lambda: _stands_still(process), REACHED_S, every=EVERY_S)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def _stands_still(process: int) -> bool:
    """Whether each of its threads has stopped, or it is gone: the signal returns before they have."""
    try:
        return all(_state(task) in "TtZX" for task in Path(f"/proc/{process}/task").iterdir())
    except FileNotFoundError:
        return not os.path.exists(f"/proc/{process}")


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def _files_written(scene: Scene) -> Iterator[str]:
    """The commit waits for the note, the note for the ledger; the JVM stops before it hears that both are done."""
    [jvm] = scene.process.jvms()
    with locked_between_batches(scene.disk) as ledger:
        since = time.time()
        reached(lambda: scene.disk.loose_files(since))
        with stopped(jvm):
            ledger.release()
            reached(scene.disk.begun)
            [batch] = scene.disk.begun()
            yield batch


def _files_are_loose(scene: Scene, batch: str) -> bool:
    state, _, records = scene.disk.noted(batch)
    loose = scene.disk.loose_files(time.time() - 2 * REACHED_S)
    as_many = [ids for ids in loose.values() if len(ids) == records]
    nowhere = batch not in scene.disk.committed() and not scene.disk.uncommitted(batch)
    return state == "begun" and bool(as_many) and nowhere


@contextmanager
def _metadata_written(scene: Scene) -> Iterator[str]:
    """The swap waits for the catalog."""
    with locked(scene.disk.catalog):
        yield at_the_swap(scene)


def _metadata_is_loose(scene: Scene, batch: str) -> bool:
    state, _, _ = scene.disk.noted(batch)
    return state == "begun" and batch not in scene.disk.committed() and bool(scene.disk.uncommitted(batch))


@contextmanager
def _swapped(scene: Scene) -> Iterator[str]:
    """The note of the end waits for the ledger."""
    with locked(scene.disk.catalog) as catalog:
        batch = at_the_swap(scene)
        with locked(scene.disk.ledger):
            catalog.release()
            reached(lambda: batch in scene.disk.committed())
            yield batch


@contextmanager
def _swapped_unheard(scene: Scene) -> Iterator[str]:
    """The service is stopped before the swap, so that it hears nothing of it."""
    with locked(scene.disk.catalog) as catalog:
        batch = at_the_swap(scene)
        with stopped(scene.process.id):
            catalog.release()
            reached(lambda: batch in scene.disk.committed())
            yield batch


def _is_committed_only(scene: Scene, batch: str) -> bool:
    state, _, _ = scene.disk.noted(batch)
    return state == "begun" and batch in scene.disk.committed() and set(scene.disk.answers(batch)) == {None}


@contextmanager
def _answered(scene: Scene, lost: int) -> Iterator[str]:
    """So many answers get lost on their way."""
    with scene.proxy.swallowing():
        reached(lambda: len(scene.proxy.swallowed) >= lost)
        yield scene.disk.batch_of(snapshot_of(scene.proxy.swallowed[0]))


def _is_noted(scene: Scene, batch: str) -> bool:
    state, snapshot_id, _ = scene.disk.noted(batch)
    stored = set(scene.disk.answers(batch))
    lost = {body for body in scene.proxy.swallowed if snapshot_of(body) == snapshot_id}
    return state == "done" and scene.disk.committed()[batch] == snapshot_id and bool(lost) and lost <= stored


FILES_WRITTEN = Point("data files written, not committed", _files_written, _files_are_loose, "void")
METADATA_WRITTEN = Point("metadata written, catalog not swapped", _metadata_written, _metadata_is_loose, "void")
SWAPPED = Point("catalog swapped, ledger not yet updated", _swapped, _is_committed_only, "done")
UNHEARD = Point("catalog swapped, service not notified", _swapped_unheard, _is_committed_only, "done")
ANSWERED = Point("ledger updated, answer lost", partial(_answered, lost=LOST_ANSWERS), _is_noted, "done")
# Of few clients, each of which waits for its answer.
ONE_ANSWERED = replace(ANSWERED, reach=partial(_answered, lost=1))


def snapshot_of(answer: bytes) -> int:
    """The snapshot that a WRITE's answer names."""
    return int(wire.parse(answer)["metadata"]["snapshot_id"])


def at_the_swap(scene: Scene) -> str:
    """Wait for a batch whose metadata is written; with the catalog held it goes no further."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [batch for batch in scene.disk.begun() if scene.disk.uncommitted(batch)]
        return bool(found)

    reached(look)
    return found[0]


def reached(true: Callable[[], object]) -> None:
    """Wait, though not for long, until a condition holds; NotReached if it never does."""
    try:
        wait_until(true, REACHED_S, every=EVERY_S)
    except TimeoutError as e:
        raise NotReached from e
