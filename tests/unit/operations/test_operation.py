"""What an operation must have, and that start-up stops over a handler that has not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError

import handlers
from handlers import discover
from handlers.rollback import Rollback
from service.api.docs_page import common_rows, request_rows
from service.errors import InvalidRequest
from service.model.call import Call
from service.operations.operation import (
    ChangeRequest,
    Example,
    Operation,
    Parts,
    Request,
    Result,
    TableRequest,
    operation,
)

HANDLER = '''
from typing import Literal
from service.model.call import Call
from service.operations.operation import Request, Result, operation

class Ask(Request):
    operation: Literal["{name}"]

class Told(Result):
    pass

@operation(Ask, Told, pool="queries")
def {function}(request: Ask, call: Call) -> Told:
    """Say nothing."""
    return Told()
'''


class Ask(TableRequest):
    operation: Literal["ASK"]
    many: int = 1


class Told(Result):
    said: str = ""


def ask(request: Ask, call: Call) -> Told:
    """Say something.

    At length.
    """
    return Told(said="yes")


def test_an_operation_is_named_after_its_models_literal_and_summed_up_by_its_first_line() -> None:
    example = Example("Ask", {"operation": "ASK"}, {"success": True})
    made = operation(Ask, Told, pool="queries", examples=(example,))(ask)
    assert made == Operation("ASK", Ask, Told, ask, "queries", "Say something.", (example,), needs="reader")


class Shelf:
    """A part of the service."""

    def __init__(self, content: str) -> None:
        self.content = content


@operation(Ask, Told, pool="queries")
def reach(request: Ask, shelf: Shelf, call: Call) -> Told:
    """Say what is on the shelf."""
    return Told(said=f"{shelf.content} for {call.id}: {request.many}")


def test_a_handler_is_given_the_parts_it_uses_by_their_classes_and_each_call() -> None:
    parts = Parts({}, Shelf("a book"))
    request = Ask(operation="ASK", tenant_id="a", table="t", many=2)
    run = reach.bind(parts)
    assert [run(request, Call(id)) for id in ("r1", "r2")] == [Told(said=f"a book for r{i}: 2") for i in (1, 2)]
    other = reach.bind(parts.replaced({Shelf: Shelf("a jar")}))
    assert (other(request, Call("r3")), parts[Shelf].content) == (Told(said="a jar for r3: 2"), "a book")


def test_a_part_that_the_service_does_not_have_stops_the_start() -> None:
    with pytest.raises(LookupError, match="no part of class Shelf"):
        reach.bind(Parts({}))


def test_an_example_takes_from_the_answers_to_what_is_given_and_shows_what_that_looks_like() -> None:
    example = Example(
        "Ask",
        {"operation": "ASK", "said": "b-1", "many": "r-1", "table": "t"},
        {"success": True},
        given=({"operation": "TELL"}, {"operation": "TELL"}),
        taken={"said": (2, "backup"), "many": (1, "metadata.request_id")},
    )
    answers = [{"metadata": {"request_id": "r-9"}}, {"backup": "b-9"}]
    assert example.after(answers) == {"operation": "ASK", "said": "b-9", "many": "r-9", "table": "t"}
    assert example.request["said"] == "b-1"


def test_a_schedule_may_run_only_an_operation_that_says_so() -> None:
    assert not operation(Ask, Told, pool="queries")(ask).schedulable
    assert operation(Ask, Told, pool="queries", schedulable=True)(ask).schedulable
    may = {o.name for o in discover() if o.schedulable}
    assert "COMPACT" in may
    assert not may & {"WRITE", "DELETE", "DROP_TABLE", "RUN_SCHEDULE"}


@pytest.mark.parametrize("annotation", [str, Literal["ask"], Literal["ASK", "TELL"]])
def test_an_operation_has_one_name_in_capitals(annotation: Any) -> None:
    class Unnamed(Request):
        operation: annotation

    with pytest.raises(TypeError, match="Literal"):
        operation(Unnamed, Told, pool="queries")


def test_an_operation_says_what_it_does() -> None:
    def mute(request: Ask, call: Call) -> Told:
        return Told()

    with pytest.raises(TypeError, match="docstring"):
        operation(Ask, Told, pool="queries")(mute)


@pytest.mark.parametrize(
    "wrong",
    [{"many": "1"}, {"many": True}, {"many": 1.0}, {"mnay": 1}, {"tenant_id": "a/b"}, {"namespace": ""}, {"table": ""}],
)
def test_a_request_is_taken_as_it_stands_or_not_at_all(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, InvalidRequest)):
        Ask.model_validate({"operation": "ASK", "tenant_id": "a", "table": "t", **wrong})


def test_only_a_trusted_request_may_name_what_is_no_name() -> None:
    value = {"operation": "ASK", "tenant_id": "_firn", "table": "t"}
    assert Ask.model_validate(value, context={"trusted": True}).tenant_id == "_firn"
    with pytest.raises((ValidationError, InvalidRequest)):
        Ask.model_validate(value, context={"trusted": False})


def test_the_handlers_that_are_there_are_one_operation_each() -> None:
    files = {path.stem for path in Path(handlers.__path__[0]).glob("*.py")} - {"__init__"}
    assert {o.name.lower() for o in discover()} == files


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is the handlers' for the length of a test."""
    known = set(sys.modules)
    monkeypatch.setattr(handlers, "__path__", [str(tmp_path)])
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_handler_in_its_file_is_found(setup: Path) -> None:
    (setup / "whisper.py").write_text(HANDLER.format(name="WHISPER", function="whisper"))
    assert [o.name for o in discover()] == ["WHISPER"]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("hollow.py", "x = 1\n", "handlers/hollow.py declares 0 operations"),
        (
            "double.py",
            HANDLER.format(name="DOUBLE", function="double") + HANDLER.format(name="TWICE", function="twice"),
            "handlers/double.py declares 2 operations",
        ),
        ("other.py", HANDLER.format(name="SHOUT", function="shout"), "handlers/other.py declares SHOUT"),
    ],
)
def test_a_handler_file_without_exactly_its_own_operation_stops_the_start(
    file: str, text: str, says: str, setup: Path
) -> None:
    (setup / file).write_text(text)
    with pytest.raises(RuntimeError, match=says):
        discover()


def test_a_handler_that_cannot_be_imported_stops_the_start(setup: Path) -> None:
    (setup / "broken.py").write_text("import service.no_such_module\n")
    with pytest.raises(ImportError):
        discover()


def test_every_operation_takes_confirm_and_the_documentation_has_it_where_it_does_something() -> None:
    needed = {"CREATE_DYNAMIC_TABLE", "DROP_DYNAMIC_TABLE", "DROP_TABLE", "REINITIALISE_TABLE"}
    for made in discover():
        assert "confirm" in made.request.model_fields
        documented = "confirm" in {row.name for row in request_rows(made)}
        assert documented is (made.name in needed), made.name
    assert "confirm" not in {row.name for row in common_rows()}
    rename = {"operation": "RENAME_TABLE", "tenant_id": "acme", "table": "t", "new_name": "u"}
    request = next(made.request for made in discover() if made.name == "RENAME_TABLE")
    assert not request.model_validate(rename).confirm
    with pytest.raises(ValidationError):
        request.model_validate({**rename, "confirm": "yes"})


def test_a_change_that_is_only_asked_about_has_no_effect() -> None:
    """However it is asked: by every field of every operation that says so of itself."""
    calls = [
        (found.request, name)
        for found in discover()
        for name, field in found.request.model_fields.items()
        if issubclass(found.request, ChangeRequest) and (field.description or "").startswith("only report ")
    ]
    assert {request.model_fields["operation"].annotation for request, _ in calls} >= {
        Literal["UNDO"],
        Literal["COMPACT"],
    }
    for request, name in calls:
        assert request.model_construct().has_effect
        assert not request.model_construct(**{name: True}).has_effect


@pytest.mark.parametrize("sent", [4358829213746520102, "4358829213746520102"])
def test_a_request_may_send_a_64_bit_id_as_text_or_as_a_number(sent: Any) -> None:
    address = {"operation": "ROLLBACK", "tenant_id": "t", "table": "t", "as_of": "release-7"}
    assert Rollback.model_validate({**address, "expected_snapshot_id": sent}).expected_snapshot_id == int(sent)
    for wrong in ("", "-1", "1.0", "x", "9" * 20, "٤", True, 1.5):
        with pytest.raises(ValidationError):
            Rollback.model_validate({**address, "expected_snapshot_id": wrong})


def test_no_response_has_a_64_bit_id_as_a_number() -> None:
    def ids(schema: Any, name: str = "") -> Iterator[tuple[str, Any]]:
        for key, part in schema.get("properties", {}).items():
            yield from ids(part, f"{name}.{key}")
        if name.rpartition(".")[2] in ("snapshot_id", "parent_id", "from_snapshot", "to_snapshot") or name.endswith(
            "_snapshot_id"
        ):
            yield name, schema
        for title, model in schema.get("$defs", {}).items():
            yield from ids(model, title)

    found = [each for o in discover() for each in ids(o.result.model_json_schema(mode="serialization"), o.name)]
    assert len(found) > len(discover())
    assert [name for name, schema in found if "integer" in str(schema)] == []
