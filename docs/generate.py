"""Writes the parts of documents that come from the code: `python -m docs.generate`.

In docs/reference they are the pages of operations (from the handlers), metrics.md (from the catalogue of metrics),
expressions.md (from the table of functions), cli.md (from the catalogue of commands) and table-files.md (from the
models of table files and dataset files). Each part is between a line such as `<!-- WRITE -->` and `<!-- end -->`; text
outside is written by hand and kept. The README has the table of the latest measurements.
"""

import re
from pathlib import Path

from bench import report
from docs import table_files
from handlers import discover
from service.api.docs_page import FieldRow, common_rows, request_rows, result_rows
from service.api.docs_requests import pretty
from service.cli.catalogue import COMMANDS
from service.cli.command import EXIT_CODES, Argument, Command
from service.cli.command import CommandExample as Call
from service.cli.example_files import FILES, SHARED_FILES
from service.cli.parser import SHARED
from service.metrics.catalogue import GAUGES, PER_TABLE, PROCESS, RECORDED, MetricSpec
from service.model.expressions.functions import TABLE, Function
from service.operations.groups import GROUPS
from service.operations.operation import Operation

REFERENCE = Path(__file__).parent / "reference"
OPERATIONS = REFERENCE / "operations"
METRICS = REFERENCE / "metrics.md"
EXPRESSIONS = REFERENCE / "expressions.md"
CLI = REFERENCE / "cli.md"
TABLE_FILES = REFERENCE / "table-files.md"
README = REFERENCE.parent.parent / "README.md"
RESULTS = README.parent / "bench" / "results"
_PART = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def generated(text: str, operations: list[Operation]) -> str:
    """The page of an operation, or of all, with its parts written again; KeyError for a part that no operation has."""
    by_name = {operation.name: operation for operation in operations}

    def part(name: str) -> str:
        match name:
            case "every_request":
                return _table(common_rows(), needed=True)
            case "groups":
                return _groups(by_name)
        return _operation(by_name[name])

    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{part(found[1])}\n<!-- end -->", text)


def generated_metrics(text: str) -> str:
    """The document of the metrics with its tables made anew."""
    parts = {"events": RECORDED, "tables": PER_TABLE, "gauges": GAUGES, "process": PROCESS}
    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{_metrics(parts[found[1]])}\n<!-- end -->", text)


def generated_expressions(text: str) -> str:
    """The document of expressions with its tables of functions made anew."""
    parts = {"functions": "\n\n".join(_functions(name, group) for name, group in TABLE.items())}
    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{parts[found[1]]}\n<!-- end -->", text)


def generated_cli(text: str) -> str:
    """The document of the `firn` command with its tables and its commands made anew."""
    parts = {
        "codes": "| code | when |\n|---|---|\n"
        + "\n".join(f"| {code} | {text} |" for code, text in EXIT_CODES.items()),
        "options": _options(SHARED),
        "commands": "\n\n".join(map(_command, COMMANDS)),
    }
    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{parts[found[1]]}\n<!-- end -->", text)


def generated_table_files(text: str) -> str:
    """The document of table files and dataset files with its tables made from their models."""
    parts = table_files.parts()
    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{parts[found[1]]}\n<!-- end -->", text)


def generated_readme(text: str) -> str:
    """The README with its table of measurements made from bench/results/latest.json."""
    parts = {"benchmarks": report.comparison(report.read(RESULTS))}
    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{parts[found[1]]}\n<!-- end -->", text)


def parts_of(text: str) -> list[str]:
    """The names of the parts a document has, in its order."""
    return [found[1] for found in _PART.finditer(text)]


def operation_pages(operations: list[Operation]) -> dict[Path, str]:
    """The page of each operation and that of all, as they should be; an operation without a page gets one."""
    pages = {OPERATIONS / "index.md": (OPERATIONS / "index.md").read_text()}
    for operation in operations:
        page = OPERATIONS / f"{operation.name.lower()}.md"
        new = f"# {operation.name}\n\n<!-- {operation.name} -->\n<!-- end -->\n"
        pages[page] = page.read_text() if page.exists() else new
    return {page: generated(text, operations) for page, text in pages.items()}


def _groups(operations: dict[str, Operation]) -> str:
    return "\n\n".join(
        f"### {group}\n\n| operation | |\n|---|---|\n"
        + "\n".join(f"| [{name}]({name.lower()}.md) | {operations[name].summary} |" for name in names)
        for group, names in GROUPS.items()
    )


def _operation(operation: Operation) -> str:
    examples = "\n".join(
        f"\n**{example.title}:**\n\n```json\n{pretty(example.request)}\n```\n\n"
        f"```json\n{pretty(example.answer).replace(chr(34) + '<any>' + chr(34), '…')}\n```"
        for example in operation.examples
    )
    responses = "\n\n".join(f"{when}:\n\n{_table(rows, needed=False)}" for when, rows in result_rows(operation))
    summary = f"{operation.summary} It needs the role {operation.role}."
    return f"{summary}\n\n{_table(request_rows(operation), needed=True)}\n\n{responses}\n{examples}"


def _table(rows: list[FieldRow], *, needed: bool) -> str:
    if not rows:
        return "No fields of its own."
    head = "| field | type | default | |\n|---|---|---|---|\n" if needed else "| field | type | |\n|---|---|---|\n"
    return head + "\n".join(_row(row, needed) for row in rows)


def _metrics(kinds: tuple[MetricSpec, ...]) -> str:
    rows = [f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |" for m in kinds]
    return "\n".join(["| metric | type | labels | |", "|---|---|---|---|", *rows])


def _command(command: Command) -> str:
    shown = [f"### firn {command.name}", command.summary + (f" {command.details}" if command.details else "")]
    if command.arguments:
        shown.append(_options(command.arguments))
    return "\n\n".join([*shown, *map(_call, command.examples)])


def _options(arguments: tuple[Argument, ...]) -> str:
    return "| | |\n|---|---|\n" + "\n".join(f"| `{_written(each)}` | {each.options['help']} |" for each in arguments)


def _written(argument: Argument) -> str:
    meta = argument.options.get("metavar") or "|".join(argument.options.get("choices", ()))
    name = meta if argument.positional else " ".join(filter(None, (", ".join(argument.names), meta)))
    return name.replace("|", "\\|")


def _call(example: Call) -> str:
    # Those that many examples have stand at the top of the document.
    own = {name: text for name, text in FILES.items() if name in example.line and name not in SHARED_FILES}
    files = "".join(f"`{name}`:\n\n```{Path(name).suffix[1:]}\n{text}```\n\n" for name, text in own.items())
    return f"**{example.title}:**\n\n{files}```console\n$ {example.shell_line}\n{example.output}```"


def _functions(name: str, group: tuple[Function, ...]) -> str:
    rows = [f"| `{f.signature}` | {f.meaning} | `{f.example}` | `{f.result}` |" for f in group]
    return "\n".join([f"### {name}", "", "| function | gives | example | is |", "|---|---|---|---|", *rows])


def _row(row: FieldRow, needed: bool) -> str:
    default = "*required*" if row.default is None else f"`{row.default}`" if row.default else ""
    cells = [f"`{row.name}`", row.kind, *([default] if needed else []), row.description.replace("|", "\\|")]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    for page, text in operation_pages(discover()).items():
        page.write_text(text)
    METRICS.write_text(generated_metrics(METRICS.read_text()))
    EXPRESSIONS.write_text(generated_expressions(EXPRESSIONS.read_text()))
    CLI.write_text(generated_cli(CLI.read_text()))
    TABLE_FILES.write_text(generated_table_files(TABLE_FILES.read_text()))
    README.write_text(generated_readme(README.read_text()))
