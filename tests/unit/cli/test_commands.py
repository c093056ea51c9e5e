"""Commands before and after their requests: help, arguments, questions, what is sent, exit codes."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.cli.catalogue import COMMANDS
from service.cli.command import Command
from service.cli.completion.scripts import SCRIPTS
from service.cli.completion.words import complete
from service.cli.connection.remote import Unreachable
from service.cli.main import main
from service.cli.parser import SHARED, arguments_of
from service.settings import ROOT
from tests.cli import Called, call

# What takes long to import, or drags in what does.
HEAVY = (
    "pydantic",
    "fastapi",
    "uvicorn",
    "pyspark",
    "pyiceberg",
    "pyarrow",
    "sqlalchemy",
    "orjson",
    "yaml",
    "http",
    "ssl",
)


class Service:
    """Answers what it was told to, and keeps what it was asked."""

    def __init__(self, **answer: Any) -> None:
        self.answer = {"success": True, **answer}
        self.asked: list[Any] = []

    def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
        self.asked.append(body or request)
        if request.get("confirm") is False and self.answer["success"]:
            return {"success": False, "error": {"code": "CONFIRMATION_REQUIRED", "message": "send confirm: true"}}
        return self.answer

    def job(self, job_id: str) -> dict[str, Any]:
        return self.answer

    cancel = job

    def close(self) -> None:
        pass


class Typing(io.StringIO):
    """Somebody at a terminal."""

    def isatty(self) -> bool:
        return True


def firn(line: list[str], service: Any, stdin: Any = None, **environ: str) -> Called:
    out, err = io.StringIO(), io.StringIO()
    try:
        code = main(line, environ, stdin=stdin or io.StringIO(), stdout=out, stderr=err, connection=service)
    except SystemExit as e:
        code = int(e.code or 0)
    return Called(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("line", [["--help"], ["table", "--help"], ["table", "create", "--help"], ["--version"], []])
def test_help_imports_nothing_that_takes_long(line: list[str]) -> None:
    code = (
        "import sys\nfrom service.cli import main\n"
        f"try: main({line!r})\nexcept SystemExit: pass\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_command_about_a_url_imports_no_part_of_the_service_but_the_command() -> None:
    code = (
        "import sys\nfrom service.cli import main\nimport service.cli.call as call\ncall.SHORT_PAUSES_S = ()\n"
        "main(['table', 'list', '--url', 'http://127.0.0.1:1'])\n"
        "print(sorted({m for m in sys.modules if m.startswith('service.') and not m.startswith('service.cli')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert "no service responds" in done.stderr
    assert done.stdout == "[]\n"


def test_every_command_has_a_summary_and_each_name_is_there_once() -> None:
    names = [each.name for each in COMMANDS]
    assert len(set(names)) == len(names)
    assert all(each.summary.endswith(".") and (each.operation or each.run) for each in COMMANDS)
    for each in COMMANDS:
        flags = [argument.name for argument in arguments_of(each)]
        assert len(set(flags)) == len(flags), each.name


def test_help_has_no_line_of_more_than_eighty_columns_but_examples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *(list(each.words) for each in COMMANDS)):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        message = capsys.readouterr().out.partition("examples:")[0]
        assert max(map(len, message.splitlines())) <= 80, message


@pytest.mark.parametrize(
    "line",
    [[], ["table"], ["tabel"], ["table", "lst"], ["table", "create"], ["table", "list", "--tenat", "x"], ["query"]],
)
def test_a_wrong_call_exits_with_2_and_asks_nothing(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    assert firn(line, service).code == 2
    assert service.asked == []


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (["table", "list"], {"operation": "LIST_TABLES", "tenant_id": "acme", "namespace": "default"}),
        (
            ["table", "rename", "t", "u", "--tenant", "x", "--namespace", "n"],
            {"operation": "RENAME_TABLE", "tenant_id": "x", "namespace": "n", "table": "t", "new_name": "u"},
        ),
        (
            ["query", "t", "--where", '{"a": 1}', "--sort", "a desc,b", "--limit", "5", "--distinct"],
            {
                "operation": "QUERY",
                "tenant_id": "acme",
                "namespace": "default",
                "table": "t",
                "filter": {"a": 1},
                "sort": [{"field": "a", "order": "desc"}, {"field": "b", "order": "asc"}],
                "distinct": True,
                "limit": 5,
            },
        ),
        (
            ["table", "alter", "t", "--add", "a=string", "--drop", "b", "--set", "snapshots={keep_last: 3}", "--yes"],
            {
                "operation": "ALTER_TABLE",
                "tenant_id": "acme",
                "namespace": "default",
                "table": "t",
                "add_columns": {"a": {"type": "string"}},
                "set_properties": {"snapshots": {"keep_last": 3}},
                "drop_columns": ["b"],
            },
        ),
        (
            ["table", "repartition", "t", "--unpartitioned", "--dry-run"],
            {
                "operation": "REPARTITION",
                "tenant_id": "acme",
                "namespace": "default",
                "table": "t",
                "partition": {"partitions": []},
                "dry_run": True,
            },
        ),
    ],
)
def test_arguments_become_the_request(line: list[str], request_: dict[str, Any]) -> None:
    service = Service()
    service.answer = {"success": False, "error": {"code": "X", "message": "no luck"}}
    assert firn(line, service, FIRN_TENANT="acme") == Called(1, "", "firn: X: no luck\n")
    assert service.asked == [request_]


@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.local], ids=lambda each: each.name)
def test_every_command_that_asks_a_service_takes_what_is_said_to_be_taken_by_all(command: Command) -> None:
    assert {each.name for each in SHARED} <= {each.name for each in arguments_of(command)}


@pytest.mark.parametrize(
    "line",
    [
        ["--tenant", "x", "--json", "table", "list", "--namespace", "n"],
        ["--tenant=x", "table", "--json", "list", "--namespace", "n"],
        ["table", "--namespace", "n", "list", "--tenant", "x", "--json"],
        ["table", "list", "--yes", "--no-background", "--tenant", "x", "--namespace", "n", "--json"],
    ],
)
def test_options_of_every_command_stand_before_it_or_after_it(line: list[str]) -> None:
    service = Service(tables=[])
    assert firn(line, service) == Called(0, '{"success":true,"tables":[]}\n', "")
    assert service.asked == [{"operation": "LIST_TABLES", "tenant_id": "x", "namespace": "n"}]


def test_an_option_before_a_command_is_about_that_one_also_where_it_takes_several() -> None:
    service = Service(recommendations=[])
    assert firn(["--tenant", "a", "compact", "--all-recommended", "--tenant", "b"], service).code == 0
    assert [request["tenant_id"] for request in service.asked] == ["a", "b"]


@pytest.mark.parametrize("line", [["--json"], ["--url"], ["--tenant", "x", "table"], ["--purge", "table", "drop", "t"]])
def test_options_without_a_command_are_a_wrong_call(line: list[str]) -> None:
    assert firn(line, Service()).code == 2


def test_json_is_the_answer_as_it_came_also_of_a_failure() -> None:
    service = Service(tables=["é", "b"], n=2**60, x=0.1)
    done = firn(["table", "list", "--json"], service)
    assert done == Called(0, '{"success":true,"tables":["é","b"],"n":1152921504606846976,"x":0.1}\n', "")
    service.answer = {"success": False, "error": {"code": "X", "message": "no luck"}}
    assert firn(["table", "list", "--json"], service) == Called(
        1, '{"success":false,"error":{"code":"X","message":"no luck"}}\n', ""
    )


def test_what_an_error_quotes_steers_no_terminal() -> None:
    service = Service()
    service.answer = {"success": False, "error": {"code": "X", "message": "no \x1b[2J\u202e here"}}
    assert firn(["table", "list"], service).err == "firn: X: no \\x1b[2J\\u202e here\n"


def test_who_reads_no_further_is_no_failure() -> None:
    code = (
        "import sys\nfrom service.cli.main import main\n"
        "class S:\n def send(self, r, key=None, body=None): return {'success': True, 'tables': ['t' * 60] * 5000}\n"
        "sys.exit(main(['table', 'list'], connection=S()))"
    )
    shell = f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0", "")


EMPTY = str(Path(__file__).with_name("no_records.json"))
DESTRUCTIVE = [
    ["table", "drop", "t", "--purge"],
    ["table", "drop", "t"],
    ["table", "delete", "t"],
    ["table", "reinitialise", "t"],
    ["table", "orphans", "t"],
    ["delete", "t", "--all"],
    ["table", "rollback", "t", "--as-of", "5"],
    ["table", "undo", "t", "r"],
    ["table", "alter", "t", "--drop", "c"],
    ["backup", "restore", "t", "b"],
    ["backup", "delete", "t", "b"],
    ["policy", "clear", "t"],
    ["schedule", "delete", "s"],
    ["dynamic", "drop", "t"],
    ["write", "t", EMPTY, "--overwrite"],
    ["table", "repartition", "t", "--unpartitioned", "--delete-source"],
]
ANSWER = {
    "table_dropped": True,
    "dropped": [],
    "purged": True,
    "restored": True,
    "rolled_back": True,
    "records_deleted": 5,
    "undone_operation": "WRITE",
    "records_removed": 1,
    "records_restored": 1,
    "records_before": 1,
    "records_after": 1,
    "schedule_deleted": True,
    "files_found": 0,
    "files_removed": 0,
    "bytes": 0,
    "description": {"schema": {"fields": {"c": {}}}},
    "backups": [{"name": "b"}],
    "schedules": [{"name": "s"}],
    "records_written": 0,
    "reason": None,
    "rules": {},
}
LOOKS = ("DESCRIBE_", "LIST_")


def changes(service: Service) -> list[Any]:
    """The requests that change something."""
    changing = (each for each in sent(service) if not each["operation"].startswith(LOOKS))
    confirmed = (each for each in changing if not each.get("dry_run") and each.get("confirm") is not False)
    return [{name: value for name, value in each.items() if name != "idempotency_key"} for each in confirmed]


def sent(service: Service) -> list[Any]:
    """The requests that were sent, as objects."""
    return [json.loads(each) if isinstance(each, bytes) else each for each in service.asked]


@pytest.mark.parametrize("line", DESTRUCTIVE, ids=" ".join)
def test_what_loses_something_is_not_done_unless_somebody_says_yes(line: list[str]) -> None:
    service = Service(**ANSWER)
    done = firn(line, service)
    assert (done.code, done.out, changes(service)) == (4, "", [])
    assert done.err.startswith("firn: not done: ")
    assert done.err.endswith("There is no terminal to ask on; use --yes\n")
    for message, shown in (("\n", ""), ("no\n", ""), ("", "\n")):
        done = firn(line, service, Typing(message))
        assert (done.code, changes(service)) == (4, [])
        assert done.err.endswith(f"Type yes to do it: {shown}firn: not done\n")
    assert firn(line, service, Typing("yes\n")).code == 0
    assert firn([*line, "--yes"], service).code == 0
    first, second = changes(service)
    assert first == second


def test_ctrl_c_at_a_question_leaves_a_clean_line_behind() -> None:
    class Leaving(Typing):
        def readline(self, size: int | None = -1, /) -> str:
            raise KeyboardInterrupt

    done = firn(["table", "drop", "t", "--purge"], Service(), Leaving())
    assert (done.code, done.err[-len("Type yes to do it: \n") :]) == (130, "Type yes to do it: \n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["tabel", "list"], "firn: error: argument COMMAND: 'tabel' is not known; did you mean table?"),
        (["table", "lst"], "firn table: error: argument COMMAND: 'lst' is not known; did you mean list?"),
        (["table", "xyzzy"], "choose from query, create, list"),
        (
            ["table", "list", "--tenat=x"],
            "firn table list: error: unrecognized arguments: --tenat=x; did you mean --tenant?",
        ),
        (["table", "list", "more"], "firn table list: error: unrecognized arguments: more\n"),
        (["table", "compact", "t", "--strategy", "zodrer"], "'zodrer' is not known; did you mean zorder?"),
    ],
)
def test_a_word_that_is_not_known_is_refused_with_the_nearest(
    line: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert firn(line, Service()).code == 2
    assert says in capsys.readouterr().err


def test_output_that_cannot_be_written_is_told_in_one_line() -> None:
    code = (
        "import sys\nfrom service.cli.main import main\n"
        "class S:\n def send(self, r, key=None, body=None): return {'success': True, 'tables': ['t']}\n"
        "sys.exit(main(['table', 'list'], connection=S()))"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, "firn: cannot continue: No space left on device\n")


@pytest.mark.parametrize(
    "line",
    [
        ["table", "drop", "t", "--yes"],
        ["table", "alter", "t", "--add", "a=string"],
        ["backup", "restore", "t", "b", "--backup"],
    ],
)
def test_what_loses_nothing_asks_nothing(line: list[str]) -> None:
    service = Service(**{**ANSWER, "purged": False})
    assert firn(line, service).code == 0
    assert len(service.asked) == 1


def test_every_destructive_command_is_among_those_tested() -> None:
    assert {each.name for each in COMMANDS if each.question} == {
        each.name for each in COMMANDS for line in DESTRUCTIVE if line[: len(each.words)] == each.words
    }


def written(text: str) -> io.TextIOWrapper:
    """Text on stdin."""
    return io.TextIOWrapper(io.BytesIO(text.encode()))


class TestCall:
    """`firn call`."""

    def sent(self, text: str, *more: str, **environ: str) -> Any:
        service = Service()
        done = firn(["call", "-", *more], service, written(text), **environ)
        assert done.code == 0, done.err
        [body] = service.asked
        return body

    def test_a_request_with_an_address_is_sent_as_it_stands(self) -> None:
        text = ' {"operation": "QUERY", "tenant_id": "a", "x": 1.10, "y": 123456789012345678901234567890.5}\n'
        assert self.sent(text) == text.encode()

    def test_what_is_missing_is_put_before_it_and_its_numbers_stay_as_they_were(self) -> None:
        body = self.sent('{"x": 1.10}', "--namespace", "n", FIRN_TENANT="acme")
        assert body == b'{"tenant_id": "acme", "namespace": "n", "x": 1.10}'
        assert self.sent("{}") == b'{"tenant_id": "default"}'

    @pytest.mark.parametrize(
        ("text", "more", "says"),
        [
            ("", [], "is not JSON"),
            ("[]", [], "must contain one request"),
            ('{"tenant_id": "a"}', ["--tenant", "b"], "leave --tenant out"),
            ('{"namespace": "a"}', ["--namespace", "b"], "leave --namespace out"),
        ],
    )
    def test_what_is_no_request_is_not_sent(self, text: str, more: list[str], says: str) -> None:
        service = Service()
        done = firn(["call", "-", *more], service, written(text))
        assert (done.code, service.asked) == (2, [])
        assert says in done.err

    def test_a_file_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        done = firn(["call", str(tmp_path / "no.json")], Service())
        assert (done.code, "cannot be read" in done.err) == (2, True)


class Ending(Service):
    """Has a job that takes three looks, or is interrupted at the second."""

    def __init__(self, interrupted: bool = False) -> None:
        super().__init__(job_id="j1")
        self.looks = 0
        self.interrupted = interrupted

    def job(self, job_id: str) -> dict[str, Any]:
        self.looks += 1
        if self.interrupted and self.looks == 2:
            raise KeyboardInterrupt
        stats = {"files_before": 5, "files_after": 1, "compaction_time_ms": 9}
        ended = {"result": {"success": True, "compacted": True, "reason": None, "stats": stats}}
        return {"success": True, "job": {"id": job_id, "state": "running", **(ended if self.looks == 3 else {})}}


def test_long_work_is_a_job_that_is_asked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.connection.jobs._FIRST_PAUSE_S", 0)
    service = Ending()
    assert firn(["table", "compact", "t"], service) == Called(0, "5 files became 1 in 9 ms\n", "")
    [request] = service.asked
    assert (request["async"], bool(request["idempotency_key"]), service.looks) == (True, True, 3)


def test_a_comparison_is_a_job_without_a_key_and_its_pages_follow_the_first() -> None:
    counts = {"records_inserted": 2, "records_deleted": 0, "records_updated": 0}

    class Comparing(Service):
        def __init__(self) -> None:
            super().__init__(job_id="j1")

        def job(self, job_id: str) -> dict[str, Any]:
            change = {"change": "inserted", "after": {"n": len(self.asked)}}
            more = {} if len(self.asked) == 2 else {"next_cursor": "c"}
            page = {"success": True, "changes": [change], **counts, **more}
            return {"success": True, "job": {"id": job_id, "state": "done", "result": page}}

    service = Comparing()
    done = firn(["table", "diff", "t", "1", "2"], service)
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 inserted, 0 deleted, 0 updated")
    assert [request["async"] for request in service.asked] == [True, True]
    assert service.asked[1]["cursor"] == "c"
    assert not any("idempotency_key" in request for request in service.asked)


def test_the_dry_run_of_an_undo_is_a_job() -> None:
    plan = {"undone_operation": "UPDATE", "records_removed": 1, "records_restored": 1}

    class Previewing(Service):
        def job(self, job_id: str) -> dict[str, Any]:
            return {"success": True, "job": {"id": job_id, "state": "done", "result": {"success": True, "plan": plan}}}

    service = Previewing(job_id="j1")
    done = firn(["table", "undo", "t", "r", "--dry-run"], service)
    assert (done.code, done.out) == (0, "UPDATE would be undone: 1 row removed, 1 restored\n")
    [request] = service.asked
    assert (request["dry_run"], request["async"]) == (True, True)


def test_who_is_interrupted_is_told_that_the_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.connection.jobs._FIRST_PAUSE_S", 0)
    done = firn(["table", "compact", "t"], Ending(interrupted=True))
    assert (done.code, done.out) == (130, "")
    assert "job j1 continues" in done.err
    assert "firn job cancel j1" in done.err


def test_where_no_service_answers_it_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.call.SHORT_PAUSES_S", ())
    done = call(["table", "list"], {"FIRN_URL": "http://127.0.0.1:1"})
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("firn: no service responds at http://127.0.0.1:1: ")


def test_an_address_that_is_none_is_a_wrong_call() -> None:
    done = call(["table", "list", "--url", "localhost:8080"], {})
    assert (done.code, "is not the address" in done.err) == (2, True)


def test_a_bad_setting_is_told_in_one_line(tmp_path: Path) -> None:
    done = call(["table", "list"], {"FIRN_HOME": str(tmp_path), "FIRN_PROT": "1"})
    assert (done.code, done.err) == (3, "firn: FIRN_PROT is not a setting; did you mean FIRN_PORT?\n")
    assert call(["serve"], {"FIRN_PROT": "1"}).code == 1


def test_a_service_that_goes_away_meanwhile_is_told() -> None:
    class Gone(Service):
        def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
            raise Unreachable("no service responds at x: gone")

    assert firn(["table", "list"], Gone()) == Called(3, "", "firn: no service responds at x: gone\n")


class TestCompletion:
    """What Tab offers."""

    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            (["ta"], ["table"]),
            (["table", "re"], ["reinitialise", "rename", "repartition", "replay", "restore"]),
            (["table", "create", "--sch"], ["--schema"]),
            (["table", "create", "--schema", ""], [":files"]),
            (["table", "create", ""], [":files"]),
            (["table", "compact", "t", "--strategy", "z"], ["zorder"]),
            (["completion", ""], ["bash", "fish", "zsh"]),
            (["table", "drop", "--purge", "--pu"], []),
            (["nonsense", ""], ["--help"]),
            (["--json", "ta"], ["table"]),
            (["--tenant", "x", "table", "--json", "des"], ["describe"]),
            (["--js"], ["--json"]),
            (["--json", "--js"], []),
            (["--tenant", ""], []),
            (["--json", "table", "create", ""], [":files"]),
            (["--json", "table", "list", "--js"], []),
            (["query", "t", "--sql", ""], []),
        ],
    )
    def test_words_are_offered_in_their_places(self, words: list[str], offered: list[str]) -> None:
        assert complete(words) == offered

    def test_each_command_can_be_reached_word_by_word(self) -> None:
        for each in COMMANDS:
            words = list(each.words)
            for i, word in enumerate(words):
                assert word in complete([*words[:i], ""])

    def test_each_option_of_a_command_is_offered(self) -> None:
        for each in COMMANDS:
            names = {a.name for a in arguments_of(each) if not a.positional}
            assert names <= set(complete([*each.words, "-"]))

    def test_a_shell_that_is_not_known_is_refused(self) -> None:
        assert firn(["completion", "tcsh"], None).code == 2
        for shell, script in SCRIPTS.items():
            assert firn(["completion", shell], None) == Called(0, script, "")


@pytest.mark.parametrize(
    "state", ["7", "9" * 5000, "release-7", "2024-01-31", "backup-20240501T101112045Z-delete-1f0c9a7e"]
)
@pytest.mark.parametrize(
    "command", [["query", "t"], ["table", "rollback", "t", "--yes"], ["backup", "restore", "t", "--yes"]]
)
def test_a_state_of_a_table_is_named_by_as_of_in_every_command(command: list[str], state: str) -> None:
    service = Service(**ANSWER, data=[], metadata={"has_more": False})
    firn([*command, "--as-of", state], service)
    assert service.asked[0]["as_of"] == state
