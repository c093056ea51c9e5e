"""The one shape of success and the one shape of failure."""

from typing import Any

from service.errors import InternalError, InvalidRecord, TableNotFound
from service.model import wire
from service.operations.envelope import failure, success
from service.operations.operation import Metadata, Result, omit_when_null


class Counted(Result):
    counted: int
    note: str | None = omit_when_null("a remark")


def message(body: bytes) -> dict[str, Any]:
    value = wire.parse(body)
    assert isinstance(value, dict)
    return value


def test_success_is_flat_with_metadata_beside_the_operations_own_fields() -> None:
    body = success(Counted(counted=2, metadata=Metadata(snapshot_id=2**63 - 1)), "r1", 7)
    assert message(body) == {
        "success": True,
        "counted": 2,
        "metadata": {"request_id": "r1", "execution_time_ms": 7, "snapshot_id": "9223372036854775807"},
    }


def test_a_success_begins_with_success_and_ends_with_metadata() -> None:
    assert list(message(success(Counted(counted=0), "r1", 0))) == ["success", "counted", "metadata"]


def test_without_a_snapshot_there_is_no_snapshot_id() -> None:
    assert "snapshot_id" not in message(success(Counted(counted=0), "r1", 0))["metadata"]


def test_a_failure_says_what_it_knows_and_no_more() -> None:
    error = InvalidRecord(
        "records[1].id: wrong", field="records[1].id", suggestion="id", details={"record": 1, "field": "id"}
    )
    assert message(failure(error, "r2")) == {
        "success": False,
        "error": {
            "code": "INVALID_RECORD",
            "message": "records[1].id: wrong",
            "field": "records[1].id",
            "suggestion": "id",
            "retryable": False,
            "details": {"record": 1, "field": "id"},
        },
        "metadata": {"request_id": "r2"},
    }
    assert message(failure(TableNotFound("gone"), "r3"))["error"] == {
        "code": "TABLE_NOT_FOUND",
        "message": "gone",
        "retryable": False,
    }


def test_a_failure_that_quotes_half_of_a_surrogate_pair_is_still_json() -> None:
    error = InternalError("not \ud800 text", field="a\udfff", details={"\ud83d": ["\ud800"]})
    said_error = message(failure(error, "r4"))["error"]
    assert (said_error["message"], said_error["field"]) == ("not \\ud800 text", "a\\udfff")
    assert said_error["details"] == {"?": ["?"]}
