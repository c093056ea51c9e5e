"""How Spark reads a file and cleans its rows, as plain values."""

from dataclasses import dataclass
from typing import Any, Literal

from service.model.expressions import Expression
from service.model.filters.predicates import Predicate
from service.model.schema.types import ColumnType, Field

FileFormat = Literal["csv", "json", "parquet"]
# The columns of a file that was split into records: the line, the text, and whether something is wrong with it.
LINE_COLUMN, RAW_COLUMN, PROBLEM_COLUMN = "_firn_line", "_firn_raw", "_firn_problem"
RuleKind = Literal["record", "type", "required", "filter"]


@dataclass(frozen=True)
class ReadableFile:
    """A file as Spark can read it, and what was found out about its text while it was fetched."""

    path: str
    size: int
    format: FileFormat
    fields: tuple[str, ...] = ()
    """The names of its columns; of CSV in the order of its fields."""
    skipped_lines: int = 0
    """The number of lines before the first record: the header, and what is before it."""
    skipped_records: int = 0
    """How many of these are not blank."""
    has_cr: bool = False
    """Whether lines may end with a carriage return too."""
    has_bom: bool = False
    has_invalid_text: bool = False
    """Whether some of its text is not UTF-8."""
    has_quotes: bool = True
    """Whether its text has the character that is around fields."""
    has_nul: bool = True
    """Whether its text has NUL characters."""
    is_split: bool = False
    """Whether `path` is a Parquet file with a row for each record: its line, its text, and what is wrong with it."""
    delimiter: str = ","
    quote: str = '"'
    null_values: tuple[str, ...] = ()

    @property
    def is_typed(self) -> bool:
        """Whether its values have types; those of other files are texts."""
        return self.format == "parquet" and not self.is_split


@dataclass(frozen=True)
class ColumnRule:
    """How a column gets its value: from a field of the file, or by an expression over the other columns."""

    name: str
    type: ColumnType
    type_name: str
    field: str | None = None
    """The column of the file; None if it has none."""
    expression: Expression | None = None
    default: Any = None
    transforms: tuple[str, ...] = ()
    nullable: bool = True


@dataclass(frozen=True)
class Rule:
    """Something that may be wrong with a row."""

    kind: RuleKind
    text: str
    column: str | None = None

    @property
    def is_conversion(self) -> bool:
        """Whether it means that the text of the file cannot be read as its columns."""
        return self.kind in ("record", "type")


@dataclass(frozen=True)
class Cleaning:
    """How the rows of a file become rows of the table, or are rejected."""

    columns: tuple[ColumnRule, ...]
    filters: tuple[tuple[str, Predicate], ...] = ()
    keeps_failed_values: bool = False
    """Whether a value that does not convert becomes null instead of rejecting its row."""
    guards_expressions: bool = False
    """Whether an expression that fails for a row rejects the row. It costs time; otherwise it fails the job."""
    constants: tuple[tuple[Field, Any], ...] = ()
    """The table's internal columns and their values."""

    def rules(self, file: ReadableFile) -> tuple[Rule, ...]:
        """Every rule for the rows of a file, in the order in which they are checked."""
        is_csv = file.format == "csv" and file.fields
        record = f"expected {len(file.fields)} fields" if is_csv else "not one JSON object"
        found = [Rule("record", record)]
        for computed in (False, True):
            for column in self.columns:
                if (column.expression is not None) is not computed:
                    continue
                if not self.keeps_failed_values:
                    wrong = "cannot be computed" if computed else f"not {_article(column.type_name)}"
                    found.append(Rule("type", f"{column.name}: {wrong}", column.name))
                if not column.nullable:
                    found.append(Rule("required", f"{column.name}: no value", column.name))
        found += [Rule("filter", text, text.partition(" ")[0]) for text, _ in self.filters]
        return tuple(found)


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
