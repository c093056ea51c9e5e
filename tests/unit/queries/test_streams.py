"""Streams as handlers open them: how many at a time, what each holds, and that all of it is let go."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pytest

from service.catalog.tables import Snapshot, Table
from service.commits.holds import SnapshotHolds
from service.engine.session.engine import Engine
from service.errors import EngineUnavailable, StorageUnavailable, TooManyRequests
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.queries.streaming.streams import Streams
from service.settings import LimitSettings
from tests.fakes import FakeTable
from tests.harness import wait_until

SCHEMA = pa.schema({"n": pa.int64()})


class Batches:
    """Batches that are there already, and may end in a failure."""

    schema = SCHEMA
    scans = ()

    def __init__(self, count: int = 1, rows: int = 10, failure: Exception | None = None) -> None:
        self.count = count
        self.rows = rows
        self.failure = failure
        self.given = 0
        self.closed = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for _ in range(self.count):
            self.given += 1
            yield pa.record_batch({"n": pa.array(range(self.rows), pa.int64())})
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self.closed += 1


class Running:
    """An engine without Spark: it runs a job with no session."""

    def run_for(self, call: Call, job: Callable[..., Any], *args: Any, **how: Any) -> Any:
        return job(None, *args, **how)

    def cancel(self, tag: str) -> None:
        """The jobs of a stream without Spark end by themselves."""


def table(size: int = 0, records: int = 0) -> Table:
    summary = {"total-files-size": str(size), "total-records": str(records)}
    schema = parse_schema({"fields": {"n": {"type": "long"}}})
    snapshot = Snapshot(7, None, 0, schema, summary)
    return cast(Table, FakeTable(TableName("a", "b", "c"), "the-uuid", schema, history=(snapshot,)))


class Setup:
    """Streams with a limit, and what they hold."""

    def __init__(self, most: int = 2) -> None:
        self.holds = SnapshotHolds()
        self.streams = Streams(LimitSettings(streams=most), cast(Engine, Running()), self.holds)
        self.requests: dict[str, Any] = {}

    def open(self, batches: Batches, caller: Call | None = None, read: Table | None = None) -> Any:
        def job(session: Any, **asked: Any) -> Any:
            self.requests = asked
            return batches

        return self.streams.open(job, "csv", caller or Call(), "r1", [(read or table(), 7)])

    @property
    def empty(self) -> bool:
        return self.streams._room.taken == 0 and not self.holds.held("the-uuid")


def read(stream: Any) -> bytes:
    chunks = []
    while chunk := cast("Future[bytes | None]", stream.advance()).result(30):
        chunks.append(chunk)
    return b"".join(chunks)


def test_a_stream_holds_its_snapshot_until_it_is_read_and_then_nothing() -> None:
    setup, batches, told = Setup(), Batches(), []
    stream = setup.open(batches)
    stream.when_closed(lambda: told.append(setup.empty))
    assert setup.holds.held("the-uuid") == {7}
    assert read(stream) == b"n\r\n" + b"".join(b"%d\r\n" % n for n in range(10))
    assert (setup.empty, batches.closed) == (True, 1)
    stream.close()
    wait_until(lambda: told == [True], 5)


def test_a_failure_before_the_first_bytes_is_raised_where_the_stream_is_opened() -> None:
    setup, batches = Setup(), Batches(0, failure=StorageUnavailable("the disk is gone"))
    with pytest.raises(StorageUnavailable):
        setup.open(batches)
    assert (setup.empty, batches.closed) == (True, 1)


def test_a_failure_after_them_is_raised_by_a_step_and_lets_everything_go() -> None:
    setup, batches = Setup(), Batches(40, 10_000, StorageUnavailable("the disk is gone"))
    stream = setup.open(batches)
    assert stream.advance().result(30)
    with pytest.raises(StorageUnavailable):
        read(stream)
    assert (setup.empty, batches.closed) == (True, 1)


def test_a_stream_that_is_given_up_reads_no_further_and_lets_everything_go() -> None:
    setup, batches = Setup(), Batches(1000, 10_000)
    stream = setup.open(batches)
    stream.advance().result(30)
    stream.close()
    wait_until(lambda: setup.empty, 5)
    assert batches.closed == 1
    assert batches.given < 100


def test_more_streams_than_the_limit_are_told_to_come_back_and_have_room_afterwards() -> None:
    setup = Setup(most=2)
    first, _ = setup.open(Batches()), setup.open(Batches())
    with pytest.raises(TooManyRequests, match="FIRN_LIMITS__STREAMS"):
        setup.open(Batches())
    read(first)
    read(setup.open(Batches()))


def test_nothing_is_begun_for_a_caller_who_has_hung_up() -> None:
    setup, caller = Setup(), Call()
    caller.cancel()
    with pytest.raises(EngineUnavailable):
        setup.open(Batches(), caller)
    assert setup.requests == {}
    assert setup.empty


def test_a_caller_who_hangs_up_is_told_to_what_works_for_them_then_and_to_nothing_else() -> None:
    caller, told = Call(), []
    with caller.cancelling(lambda: told.append("over")):
        pass
    with caller.cancelling(lambda: told.append("now")):
        caller.cancel()
        caller.cancel()
    with caller.cancelling(lambda: told.append("late")):
        pass
    assert told == ["now", "late"]


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [(0, 8192), (50, 8192), (1000, 524), (100_000, 5), (10_000_000, 1)],
)
def test_the_longer_the_rows_the_fewer_are_in_a_batch(row_bytes: int, rows: int) -> None:
    setup = Setup()
    read(setup.open(Batches(), read=table(row_bytes * 1000, 1000)))
    assert setup.requests["rows"] == rows


def test_a_slow_reader_makes_nothing_be_read_ahead() -> None:
    setup, batches = Setup(), Batches(1000, 10_000)
    stream = setup.open(batches)
    stream.advance().result(30)
    given = batches.given
    time.sleep(0.2)
    assert batches.given == given
    stream.close()
