"""Groups of files are rewritten side by side; what fails or is cancelled ends the others, and what is done is kept."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.engine.iceberg.replace import EditedRows
from service.errors import Cancelled, RowCountMismatch
from service.maintenance import rewriter as module
from service.maintenance.rewriter import FileRewriter, RewriteProgress
from service.model.call import Call

SECONDS = 10


@dataclass(frozen=True)
class Group:
    name: str
    files: int = 2
    bytes: int = 100
    rows: int = 10


@dataclass
class FakeEngine:
    sessions: int = 4
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self, tag: str) -> None:
        self.cancelled.set()

    def rows_written(self, tag: str) -> int:
        return 0


@dataclass
class Case:
    engine: FakeEngine = field(default_factory=FakeEngine)
    call: Call = field(default_factory=Call)
    progress: RewriteProgress = field(default_factory=RewriteProgress)
    begun: list[str] = field(default_factory=list)

    def rewriter(self, at_once: int = 1, fatal: tuple[type[Exception], ...] = (Exception,)) -> FileRewriter[Group, str]:
        return FileRewriter(cast(Any, self.engine), "tag", at_once, self.call, self.progress, fatal)

    def recipe(self, then: Callable[[str], str]) -> Callable[[Group], str]:
        def rewrite(group: Group) -> str:
            self.begun.append(group.name)
            return then(group.name)

        return rewrite


def collected(rounds: Iterator[list[tuple[Group, Future[str]]]]) -> dict[str, str]:
    """What was made of each group; the first failure is raised."""
    return {group.name: result.result() for ended in rounds for group, result in ended}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.01)


def test_every_group_is_given_back_with_what_was_made_of_it_and_counted() -> None:
    case = Case()
    with case.rewriter(2).rewriting([Group("a"), Group("b", 3)], case.recipe(str.upper)) as rounds:
        assert collected(rounds) == {"a": "A", "b": "B"}
    assert asdict(case.progress) == {
        "phase": "queued",
        "files_done": 5,
        "files_total": 5,
        "bytes_done": 200,
        "bytes_total": 200,
        "records_done": 20,
        "records_total": 20,
    }


def test_two_sessions_are_left_to_others() -> None:
    case = Case(FakeEngine(sessions=4))
    assert [case.rewriter(n).at_once for n in (1, 2, 9)] == [1, 2, 2]
    assert Case(FakeEngine(sessions=1)).rewriter(9).at_once == 1


def test_after_a_failure_that_is_fatal_no_other_group_is_begun() -> None:
    case = Case()

    def fail(name: str) -> str:
        raise ValueError(name)

    with (
        pytest.raises(ValueError, match="a"),
        case.rewriter().rewriting([Group(name) for name in "abc"], case.recipe(fail)) as rounds,
    ):
        collected(rounds)
    assert case.begun == ["a"]


def test_after_any_other_failure_the_rest_goes_on() -> None:
    case, failed = Case(), []

    def fail(name: str) -> str:
        if name == "a":
            raise ValueError(name)
        return name

    with case.rewriter(fatal=(KeyError,)).rewriting([Group(name) for name in "abc"], case.recipe(fail)) as rounds:
        for ended in rounds:
            failed += [group.name for group, result in ended if result.exception()]
    assert (case.begun, failed) == (["a", "b", "c"], ["a"])


def test_a_failure_of_the_caller_ends_what_runs_and_what_waits() -> None:
    case = Case()

    def until_cancelled(name: str) -> str:
        if name != "a":
            assert case.engine.cancelled.wait(SECONDS)
        return name

    groups = [Group(name) for name in "abcd"]
    with (
        pytest.raises(IndexError),
        case.rewriter(2).rewriting(groups, case.recipe(until_cancelled)) as rounds,
    ):
        _ = next(ended for ended in rounds if ended)[5]
    assert case.engine.cancelled.is_set()
    assert "d" not in case.begun


def test_a_cancellation_is_reported_whatever_the_recipe_makes_of_it() -> None:
    case = Case()

    def fail(name: str) -> str:
        case.call.cancel()
        raise ValueError("job 7 was cancelled")

    with pytest.raises(Cancelled), case.rewriter().rewriting([Group("a")], case.recipe(fail)) as rounds:
        collected(rounds)


@pytest.mark.parametrize(
    ("rows", "added", "removed"),
    [
        (EditedRows(held=10, listed=10, deleted=2, inserted=1, written=8), 8, 10),  # one was lost in writing
        (EditedRows(held=10, listed=10, deleted=2, inserted=1, written=9), 8, 10),  # one is not in the snapshot
        (EditedRows(held=9, listed=10, deleted=2, inserted=1, written=8), 8, 9),  # other files go than those read
    ],
)
def test_an_edit_whose_rows_do_not_add_up_is_refused(rows: EditedRows, added: int, removed: int) -> None:
    summary = {"added-records": str(added), "deleted-records": str(removed)}
    with pytest.raises(RowCountMismatch):
        rows.verify(SimpleNamespace(summary=lambda: summary))


def test_one_whose_rows_add_up_passes() -> None:
    rows = EditedRows(held=9, listed=10, deleted=2, inserted=1, written=8)
    rows.verify(SimpleNamespace(summary=lambda: {"added-records": "8", "deleted-records": "10"}))
