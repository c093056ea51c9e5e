"""Where a change's rows may be now, and which later changes may have changed them. Without I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TracedCommit:
    """A commit, by the files that it moved rows between."""

    snapshot_id: int
    added: frozenset[str]
    removed: frozenset[str]
    leaves_rows: bool
    """Whether it changed no row."""
    brings_back: bool = False
    """Whether it brought back rows that an earlier commit had deleted."""
    deleted_from: frozenset[str] = frozenset()
    """Files that are still there, with rows that it deleted."""


@dataclass(frozen=True)
class Traced:
    files: frozenset[str]
    """The files that may hold the rows now."""
    suspects: tuple[TracedCommit, ...]
    """Commits that may have changed the rows: they removed files, or rows of files, in which these may have been."""


def trace(files: Iterable[str], later: Iterable[TracedCommit]) -> Traced:
    """Follow the rows of some files through commits, oldest first."""
    at, suspects = frozenset(files), []
    for step in later:
        if at & (step.removed | step.deleted_from):
            if not step.leaves_rows:
                suspects.append(step)
            at = (at - step.removed) | step.added
        elif step.brings_back:
            at |= step.added
    return Traced(at, tuple(suspects))


@dataclass(frozen=True)
class UndoneChange:
    """What an UNDO undid: a request of a batch."""

    batch: str
    request_id: str

    @property
    def text(self) -> str:
        return f"{self.batch}:{self.request_id}"


def read_undone(text: str) -> UndoneChange:
    batch, _, request_id = text.partition(":")
    return UndoneChange(batch, request_id)


def standing(undos: Sequence[tuple[str, UndoneChange]]) -> dict[str, UndoneChange]:
    """The UNDOs that were not undone themselves, by batch, with what they undid; `undos` has the oldest first."""
    found: dict[str, UndoneChange] = {}
    gone: set[str] = set()
    for batch, undone in reversed(undos):
        if batch not in gone:
            found[batch] = undone
            gone.add(undone.batch)
    return found


def without_effect(later: Iterable[str], undos: Mapping[str, UndoneChange], requests: Mapping[str, int]) -> set[str]:
    """The later batches that have no effect: changes that were undone completely, and UNDOs of later changes.

    `undos` are those standing; `requests` says how many requests share a batch.
    """
    batches = set(later)
    found: set[str] = set()
    for batch, undone in undos.items():
        if batch in batches and undone.batch in batches:
            found.add(batch)
            if requests.get(undone.batch, 1) == 1:
                found.add(undone.batch)
    return found
