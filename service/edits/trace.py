"""Where a change's rows may be by now, and which later changes may have touched them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A commit as far as it moved rows from files to files."""

    snapshot_id: int
    added: frozenset[str]
    removed: frozenset[str]
    leaves_rows: bool
    """Whether it left all rows as they were."""
    brings_back: bool = False
    """Whether rows that an earlier commit took away came back with it."""


@dataclass(frozen=True)
class Traced:
    files: frozenset[str]
    """Those that may hold the rows now."""
    suspects: tuple[Step, ...]
    """Commits that took away files in which the rows may have been, and may have changed them."""


def trace(files: Iterable[str], later: Iterable[Step]) -> Traced:
    """Follow the rows of some files through commits, oldest first."""
    at, suspects = frozenset(files), []
    for step in later:
        if at & step.removed:
            if not step.leaves_rows:
                suspects.append(step)
            at = (at - step.removed) | step.added
        elif step.brings_back:
            at |= step.added
    return Traced(at, tuple(suspects))


@dataclass(frozen=True)
class Undone:
    """What an UNDO took back: a request of a batch."""

    batch: str
    request_id: str

    @property
    def text(self) -> str:
        return f"{self.batch}:{self.request_id}"


def read_undone(text: str) -> Undone:
    batch, _, request_id = text.partition(":")
    return Undone(batch, request_id)


def standing(undos: Sequence[tuple[str, Undone]]) -> dict[str, Undone]:
    """Of UNDOs, oldest first, by batch: those that were not undone themselves, with what they took back."""
    found: dict[str, Undone] = {}
    gone: set[str] = set()
    for batch, undone in reversed(undos):
        if batch not in gone:
            found[batch] = undone
            gone.add(undone.batch)
    return found


def without_effect(later: Iterable[str], undos: Mapping[str, Undone], requests: Mapping[str, int]) -> set[str]:
    """Of batches that came after some moment: changes that were taken back since, whole, and UNDOs of such or of others
    that came after it. `undos` are those standing; `requests` says how many share a batch."""
    batches = set(later)
    found: set[str] = set()
    for batch, undone in undos.items():
        if batch in batches and undone.batch in batches:
            found.add(batch)
            if requests.get(undone.batch, 1) == 1:
                found.add(undone.batch)
    return found
