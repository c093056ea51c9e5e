"""Every place that gives Spark text to parse is known, and so is every field of a request that has such text.

If a test here fails, see to it that the new text is checked as docs/deploy/security.md says, and add it there and here.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from handlers import discover
from service.settings import ROOT

ENGINE = ROOT / "service" / "engine"
# Methods and functions that have Spark parse their text.
PARSING = {"sql", "selectExpr", "expr", "parsePlan", "parseExpression", "parseTableIdentifier", "parseDataType"}
PARSING |= {"fromDDL", "filter", "where"}
OURS = {"run", "over"}  # of service/engine/sql/sql.py

# They have Spark parse a text that a request contains, after the SQL sandbox has read it.
UNTRUSTED = {
    "sql/tenant_sql.py": "the sql of QUERY and EXPLAIN: check_parsed and check_analysed",
    "jobs/dynamic/analysed.py": "the query of a dynamic table: the same",
    "jobs/dynamic/views.py": "the steps of its refresh, compiled from the query",
    "jobs/dynamic/refresh.py": "the query of a dynamic table, as it was analysed",
    "jobs/dynamic/audit.py": "the query of a dynamic table, as it was analysed",
}
# They make their text of quoted names, parameters, and the trees of filters and expressions.
OWN = {
    *(
        "iceberg/carry_over.py",
        "iceberg/layout.py",
        "iceberg/staging.py",
        "jobs/diff.py",
        "jobs/edit.py",
        "jobs/edits/staged_records.py",
    ),
    *("jobs/estimate.py", "jobs/ingest/files.py", "jobs/ingest/many.py", "jobs/ingest/restate.py", "jobs/relayout.py"),
    *("jobs/restore.py", "jobs/undo.py", "queries/warm.py", "sql/derived.py", "sql/edit_sql.py", "sql/failing.py"),
    *("sql/past.py", "sql/ranges.py", "sql/sql.py", "jobs/dynamic/result.py", "jobs/dynamic/sources.py"),
    *("jobs/dynamic/written.py", "jobs/select.py", "jobs/stream.py"),
}
# A text of SQL in a request: which operation has it where, and what reads it first.
FIELDS = {
    "QUERY sql": "the SQL sandbox",
    "CREATE_DYNAMIC_TABLE sql": "the SQL sandbox, after the statement",
    "CREATE_DYNAMIC_TABLE query": "the SQL sandbox",
    "EXPLAIN_DYNAMIC_TABLE query": "the SQL sandbox",
}
WORDS = ("sql", "query", "expression", "condition", "select", "having", "predicate", "where")


def parsed_by_spark(path: Path) -> set[str]:
    """The names of the functions by which a module has Spark parse text."""
    tree = ast.parse(path.read_text())
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "service.engine.sql.sql"
        for alias in node.names
        if alias.name in OURS
    }
    return set(_called(tree, ours))


def _called(tree: ast.Module, ours: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in PARSING:
                # A condition on columns, or on an Arrow table, is no text.
                if name not in ("filter", "where") or _is_text(first):
                    yield name
            case ast.Call(func=ast.Attribute(value=ast.Name("sql"), attr=name)) if name in OURS:
                yield name
            case ast.Call(func=ast.Name(name)) if name in ours or name == "expr":
                yield name


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_module_that_has_spark_parse_text_is_known() -> None:
    found = {str(path.relative_to(ENGINE)) for path in ENGINE.rglob("*.py") if parsed_by_spark(path)}
    assert found == UNTRUSTED.keys() | OWN


def test_only_the_sandbox_s_callers_know_the_parser_itself() -> None:
    found = [path.name for path in ENGINE.rglob("*.py") if "parsePlan" in parsed_by_spark(path)]
    assert found == ["tenant_sql.py"]


def test_every_text_of_sql_in_a_request_is_known() -> None:
    found = {f"{one.name} {name}" for one in discover() for name in text_fields(one.request) if is_sql(name)}
    assert found == FIELDS.keys()


def text_fields(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if str in getattr(field.annotation, "__args__", (field.annotation,)):
            yield name


def is_sql(name: str) -> bool:
    return any(word in name.split("_") for word in WORDS)
