"""The progress of long work shows what is done, of how much, how fast, and how long the rest takes."""

from dataclasses import dataclass

from service.model.progress import RowProgress


@dataclass
class Files(RowProgress):
    files_total: int | None = None


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def started(records: int, measured: int = 0) -> tuple[Files, Clock]:
    progress, clock = Files("writing"), Clock()
    progress._clock = clock
    progress.expect(records, lambda: measured)
    return progress, clock


def test_only_what_is_known_is_shown() -> None:
    assert Files().figures() == {"phase": "queued"}
    assert Files(files_total=3).figures() == {"phase": "queued", "files_total": 3}
    progress, _ = started(1000)
    assert progress.figures() == {"phase": "writing", "records_done": 0, "records_total": 1000}


def test_the_rate_and_the_time_left_follow_from_the_rows_that_are_done() -> None:
    progress, clock = started(1000)
    clock.now += 2
    progress.done(250)
    figures = progress.figures()
    assert (figures["records_done"], figures["records_per_s"], figures["remaining_ms"]) == (250, 125, 6000)
    progress.expect(500)
    figures = progress.figures()
    assert (figures["records_total"], figures["remaining_ms"]) == (1500, 10_000), "the total grows with later rounds"


def test_rows_are_counted_while_a_piece_of_work_is_in_progress() -> None:
    progress, clock = started(1000, measured=400)
    clock.now += 4
    assert progress.figures()["records_done"] == 400
    progress.done(900)
    assert progress.figures()["records_done"] == 900, "the measure may miss some, but none is counted twice"


def test_no_more_is_done_than_there_is() -> None:
    progress, clock = started(10, measured=25)
    clock.now += 1
    assert progress.figures()["records_done"] == 10
    assert progress.figures()["remaining_ms"] == 0


def test_work_that_begins_again_forgets_what_was_done() -> None:
    progress, clock = started(10)
    progress.done(10)
    clock.now += 50
    progress.restart()
    assert progress.figures() == {"phase": "writing"}
    progress.expect(20)
    clock.now += 1
    progress.done(5)
    assert progress.figures()["remaining_ms"] == 3000
