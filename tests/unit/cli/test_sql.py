"""`firn sql`: statements of a script and of somebody at a prompt, and what Tab completes."""

import io
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.cli.commands.sql import completions, split_statements
from service.cli.connection.names import Names
from service.cli.connection.remote import Unreachable
from service.settings import ROOT
from tests.cli import Called
from tests.unit.cli.test_commands import Service, Typing, firn, written

ROWS = {"data": [{"n": 1}], "metadata": {"has_more": False}}
SHOWN = "n\n1\n1 row\n"


def sqls(service: Service) -> list[str]:
    return [each["sql"] for each in service.asked]


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT 2", ["SELECT 1"], "SELECT 2"),
        ("SELECT ';' AS a, `b;`, \";\"; x", ["SELECT ';' AS a, `b;`, \";\""], "x"),
        ("SELECT 1 -- no; end\n; SELECT /* ; */ 2;", ["SELECT 1 -- no; end", "SELECT /* ; */ 2"], ""),
        ("SELECT 1; -- the end;", ["SELECT 1"], ""),
        ("SELECT 1; /* ; */\n-- ;\n", ["SELECT 1"], ""),
        ("-- first;\nSELECT 1;", ["-- first;\nSELECT 1"], ""),
        ("-- nothing\n;SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; /* not; over", ["SELECT 1"], "/* not; over"),
        ("SELECT 'it\\'s; one'; SELECT \"\\\";\";", ["SELECT 'it\\'s; one'", 'SELECT "\\";"'], ""),
        ("SELECT 'it''s;", [], "SELECT 'it''s;"),
        (";;", [], ""),
    ],
)
def test_a_semicolon_ends_a_statement_unless_it_is_quoted(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)


def test_a_script_runs_each_statement_in_order() -> None:
    service = Service(**ROWS)
    done = firn(["sql", "-n", "shop", "--limit", "5"], service, written("SELECT 1;\nSELECT\n 2"))
    assert (done.code, done.out, done.err) == (0, SHOWN * 2, "")
    common = {"operation": "QUERY", "tenant_id": "default", "namespace": "shop", "limit": 5}
    assert service.asked == [{**common, "sql": "SELECT 1"}, {**common, "sql": "SELECT\n 2"}]


def test_a_script_ends_at_a_failure() -> None:
    service = Service(success=False, error={"code": "INVALID_QUERY", "message": "no"})
    done = firn(["sql"], service, written("SELECT 1; SELECT 2;"))
    assert (done.code, done.err, len(service.asked)) == (1, "firn: INVALID_QUERY: no\n", 1)


def test_at_a_prompt_a_statement_may_have_several_lines_and_a_failure_ends_nothing() -> None:
    class Failing(Service):
        def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
            super().send(request, key, body)
            error = {"success": False, "error": {"code": "INVALID_QUERY", "message": "no"}}
            return error if "bad" in request["sql"] else self.answer

    service = Failing(**ROWS)
    done = firn(["sql"], service, Typing("SELECT bad;\nSELECT\n1;\n\\q\nSELECT 2;\n"))
    assert (done.code, done.out) == (0, SHOWN)
    assert sqls(service) == ["SELECT bad", "SELECT\n1"]
    assert "INVALID_QUERY: no" in done.err
    assert "   -> " in done.err


def test_comments_are_not_sent() -> None:
    service = Service(**ROWS)
    assert firn(["sql"], service, written("-- one;\nSELECT 1; /* two; */ -- three\n")).out == SHOWN
    assert sqls(service) == ["-- one;\nSELECT 1"]
    service = Service(**ROWS)
    assert firn(["sql"], service, Typing("-- nothing\nSELECT 1; -- the end\n\\q\n")).out == SHOWN
    assert sqls(service) == ["SELECT 1"]


def test_a_script_that_is_not_utf_8_is_refused_in_one_line() -> None:
    service = Service(**ROWS)
    done = firn(["sql"], service, io.TextIOWrapper(io.BytesIO(b"SELECT '\xff';")))
    assert done == Called(2, "", "firn: stdin is not UTF-8 text: byte 8 cannot be read\n")
    assert service.asked == []


@pytest.mark.parametrize("line", ["\\d", "\\d nosuch"])
def test_an_error_of_a_list_ends_no_session(line: str) -> None:
    class Failing(Service):
        def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
            if request["operation"] == "QUERY":
                return super().send(request, key, body)
            if "nosuch" in line:
                return {"success": False, "error": {"code": "TABLE_NOT_FOUND", "message": "there is none"}}
            raise Unreachable("no service responds")

    done = firn(["sql"], Failing(**ROWS), Typing(f"{line}\nSELECT 1;\n\\q\n"))
    assert (done.code, done.out) == (0, SHOWN)
    assert ("TABLE_NOT_FOUND: there is none" if "nosuch" in line else "no service responds") in done.err


def test_control_characters_of_a_name_do_not_reach_the_terminal() -> None:
    service = Service(description={"schema": {"fields": {"a\x1b[2J": {}}}})
    assert firn(["sql"], service, Typing("\\d orders\n\\q\n")).out == "a\\x1b[2J\n"


def test_it_shows_help_and_ends_with_the_input() -> None:
    done = firn(["sql"], Service(**ROWS), Typing("\\?\n"))
    assert (done.code, "Tab completes" in done.out) == (0, True)


class Catalog(Service):
    """A service with two tables."""

    def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
        self.asked.append(request)
        tables = {"shop": ["orders"], "web": ["visits"]}
        fields = {"orders": ["id", "customer"], "visits": ["page"]}
        return {
            "success": True,
            "namespaces": list(tables),
            "tables": tables.get(request.get("namespace"), []),
            "description": {"schema": {"fields": dict.fromkeys(fields.get(request.get("table"), []))}},
        }


@pytest.mark.parametrize(
    ("word", "statement", "found"),
    [
        ("or", "SELECT * FROM or", ["orders", "order", "or"]),
        ("web.", "SELECT * FROM web.", ["web.visits"]),
        ("cu", "SELECT cu FROM orders", ["customer"]),
        ("o.cu", "SELECT o.cu FROM shop.orders o", ["o.customer"]),
        ("p", "SELECT p FROM web.visits", ["page", "partition"]),
        ("SEL", "SEL", ["SELECT"]),
    ],
)
def test_tables_columns_and_keywords_are_completed(word: str, statement: str, found: list[str]) -> None:
    names = Names(Catalog(), "acme", "shop")
    assert completions(names, word, statement) == found
    asked = len(names.connection.asked)  # type: ignore[attr-defined]
    assert completions(names, word, statement) == found
    assert len(names.connection.asked) == asked, "names are read once"  # type: ignore[attr-defined]


def test_a_terminal_has_a_history_and_completion(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom service.cli.main import main\nfrom tests.unit.cli.test_sql import Catalog, ROWS\n"
        "class S(Catalog):\n"
        "    def send(self, r, key=None, body=None):\n"
        "        if r['operation'] == 'QUERY': print('SQL', r['sql'])\n"
        "        return ROWS | {'success': True} if r['operation'] == 'QUERY' else super().send(r)\n"
        "sys.exit(main(['sql', '-n', 'shop'], connection=S()))"
    )
    main, terminal = pty.openpty()
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=terminal, stdout=terminal, stderr=terminal, env=environ
    )
    os.close(terminal)
    seen = b""
    try:
        while b"firn> " not in seen:
            seen += os.read(main, 1024)
        os.write(main, b"select page from web.v\t;\n")
        while b"SQL " not in seen or seen.count(b"firn> ") < 2:
            seen += os.read(main, 1024)
        os.write(main, b"\\q\n")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        os.close(main)
    assert b"SQL select page from web.visits" in seen
    history = tmp_path / "firn" / "sql_history"
    assert "select page from web.visits" in history.read_text()
    assert (stat.S_IMODE(history.stat().st_mode), stat.S_IMODE(history.parent.stat().st_mode)) == (0o600, 0o700)
