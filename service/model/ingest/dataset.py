"""The dataset file: which columns the rows of a file get, what makes a row wrong, and what then happens to it."""

import re
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from service.errors import FirnError, InvalidFilter, InvalidRequest, InvalidSchema, did_you_mean
from service.model.expressions import Expression
from service.model.expressions.assigned import read_assignment
from service.model.filters.conditions import OPERATORS
from service.model.filters.predicates import And, IsNull, Not, Or, Predicate
from service.model.ingest.table_file import FileModel
from service.model.records import read_literal
from service.model.schema import types
from service.model.schema.columns import Column, columns_of
from service.model.schema.definition import check_column_name, refuse_same_names
from service.model.schema.types import ColumnType, DecimalType, Primitive, TableSchema

OnError = Literal["reject_file", "quarantine", "null"]
OnDrift = Literal["fail", "ignore", "evolve"]
Transform = Literal["upper", "lower", "trim", "ltrim", "rtrim", "title", "collapse_spaces"]

_TYPES: dict[str, ColumnType] = {
    "DATE": Primitive("date"),
    "INTEGER": Primitive("integer"),
    "BIGINT": Primitive("long"),
    "DOUBLE": Primitive("double"),
    "DECIMAL": DecimalType(18, 3),
    "VARCHAR": Primitive("string"),
    "BOOLEAN": Primitive("boolean"),
    "TIMESTAMP": Primitive("timestamp"),
}
_DECIMAL = re.compile(r"DECIMAL\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)\s*%")
_SIGNS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "eq", "!=": "ne", "in": "in", "not_in": "not_in"}
_SIGNS |= {"like": "like", "between": "between"}
_NO_VALUE = ("is_null", "is_not_null", "not_empty")
_ENCODINGS = ("utf-8", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be")


def parse_type(text: str) -> ColumnType:
    """The column type that a dataset file means by a name; ValueError if there is none."""
    name = text.strip().upper()
    if found := _TYPES.get(name):
        return found
    if digits := _DECIMAL.fullmatch(name):
        precision, scale = int(digits[1]), int(digits[2])
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalType(precision, scale)
        raise ValueError(f"{text[:80]!r} is not a decimal type; use DECIMAL(p,s) with p from 1 to 38 and s up to p")
    _, hint = did_you_mean(name, [*_TYPES, "DECIMAL(10,2)"])
    raise ValueError(f"{text[:80]!r} is not a type; {hint}")


def _checked_type(text: str) -> str:
    parse_type(text)
    return text


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class DatasetColumn(FileModel):
    name: str = Field(description="the column's name in the table")
    type: Annotated[str, AfterValidator(_checked_type)] = Field(
        description="DATE, INTEGER, BIGINT, DOUBLE, DECIMAL (18,3), DECIMAL(p,s), VARCHAR, BOOLEAN or TIMESTAMP"
    )
    source: str | None = Field(default=None, min_length=1, description="its name in the file; default: `name`")
    expression: str | None = Field(
        default=None,
        description="computes the value from other columns of this file, which have no expression themselves",
    )
    default: Any = Field(default=None, description="its value if the file has none; an empty field counts as none")
    transform: Annotated[tuple[Transform, ...], BeforeValidator(_as_list)] = Field(
        default=(), description="changes of the text before it is converted, in order"
    )
    nullable: bool = Field(default=True, description="false: a row without a value is rejected")
    optional: bool = Field(default=False, description="true: a file may lack it; it then has its default, or no value")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.optional and self.expression is not None:
            raise ValueError("optional is about columns of the file, but expression computes this one; leave one out")
        if self.optional and not self.nullable and self.default is None:
            raise ValueError("optional needs a default, or nullable: true: else every row of such a file is rejected")
        if self.expression is not None and (self.source is not None or self.transform):
            raise ValueError("expression excludes source and transform; put them into the expression, or leave it out")
        return self

    @property
    def kind(self) -> ColumnType:
        return parse_type(self.type)

    @property
    def source_name(self) -> str | None:
        """Its name in the file; None if it is computed."""
        return None if self.expression is not None else self.source or self.name


class DatasetFilter(FileModel):
    """A condition that rows must fulfil; other rows are rejected."""

    column: str = Field(description="a column of the table")
    operator: Literal[
        ">", ">=", "<", "<=", "=", "!=", "in", "not_in", "like", "is_null", "is_not_null", "not_empty", "between"
    ] = Field(description="how the column is compared with the value")
    value: Any = Field(default=None, description="the value; a list for `in` and `not_in`, two for `between`")
    allow_null: bool = Field(default=False, description="true: a row whose column is null fulfils it")

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        if self.operator in _NO_VALUE:
            if self.value is not None:
                raise ValueError(f"{self.operator} takes no value; leave value out")
        elif self.value is None:
            raise ValueError(f"value is missing; {self.operator} needs one")
        return self

    @property
    def rule(self) -> str:
        """What the quarantine and the response call it."""
        shown = "" if self.value is None else f" {self.value}"
        return f"{self.column} {self.operator}{shown}"[:200]

    def predicate(self, schema: TableSchema, path: str) -> Predicate:
        """The condition; InvalidFilter if its column does not exist, or its value does not fit the column."""
        column = columns_of(schema)(self.column, f"{path}.column")
        found = self._compared(column, f"{path}.value")
        return Or((IsNull(column), found)) if self.allow_null else found

    def _compared(self, column: Column, path: str) -> Predicate:
        if self.operator == "is_null":
            return IsNull(column)
        not_null = Not(IsNull(column))
        if self.operator == "is_not_null":
            return not_null
        if self.operator == "not_empty":
            if column.type != Primitive("string"):
                return not_null
            return And((not_null, OPERATORS["ne"](column, "ne", "", path)))
        operator = _SIGNS[self.operator]
        return OPERATORS[operator](column, operator, _exact(self.value), path)


def _exact(value: Any) -> Any:
    """A value of a YAML file as filters expect it: numbers with a fraction are decimals."""
    if isinstance(value, float):
        return Decimal(repr(value))
    return [_exact(item) for item in value] if isinstance(value, list | tuple) else value


class DriftRules(FileModel):
    """What happens if the columns of a file are not those that are expected."""

    new: OnDrift = Field(default="fail", description="the file has a column that is not expected")
    missing: OnDrift = Field(default="fail", description="the file lacks an expected column")
    retyped: OnDrift = Field(default="fail", description="the values of a column no longer fit its type")


class CsvFormat(FileModel):
    """How CSV files are written."""

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="between fields")
    quote: str = Field(default='"', min_length=1, max_length=1, description="around fields; doubled inside a field")
    header: bool = Field(default=True, description="false: the columns are in the order of the dataset's")
    encoding: str = Field(default="utf-8", description=f"one of {', '.join(_ENCODINGS)}")
    null_values: tuple[str, ...] = Field(
        default=(), strict=False, max_length=20, description="texts that mean null, besides an empty field"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encoding.lower() not in _ENCODINGS:
            raise ValueError(f"encoding {self.encoding!r} is not supported; use {', '.join(_ENCODINGS)}")
        if self.delimiter == self.quote or {self.delimiter, self.quote} & {"\n", "\r"}:
            raise ValueError("delimiter and quote must differ, and cannot be line breaks")
        return self


class MaxRejects(FileModel):
    """The file is refused if more rows than this are rejected."""

    count: int | None = None
    percent: Decimal | None = None

    def exceeded(self, rejected: int, read: int) -> bool:
        if self.count is not None:
            return rejected > self.count
        return self.percent is not None and rejected * 100 > self.percent * read

    def __str__(self) -> str:
        return f"{self.percent.normalize():f}%" if self.percent is not None else str(self.count)


def _read_max_rejects(value: Any) -> Any:
    if value is None or isinstance(value, MaxRejects):
        return value
    if type(value) is int and value >= 0:
        return MaxRejects(count=value)
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found or Decimal(found[1]) > 100:
        raise ValueError(f"{value!r} is neither a number of rows, such as 100, nor a percentage, such as 5%")
    return MaxRejects(percent=Decimal(found[1]))


class Dataset(FileModel):
    """A dataset file."""

    name: str | None = Field(default=None, max_length=200, description="a name for the data")
    description: str | None = Field(default=None, max_length=4000, description="what the data is")
    columns: tuple[DatasetColumn, ...] = Field(
        strict=False, min_length=1, max_length=1000, description="the table's columns, in order"
    )
    filters: tuple[DatasetFilter, ...] = Field(
        default=(), strict=False, max_length=200, description="conditions that every row must fulfil"
    )
    on_error: OnError = Field(
        default="quarantine",
        description="for a value that cannot be converted: `reject_file` refuses the file, `quarantine` rejects the "
        "row, `null` makes the value null",
    )
    max_rejects: Annotated[MaxRejects | None, BeforeValidator(_read_max_rejects)] = Field(
        default=None, description="refuse a file with more rejected rows: a number, or a percentage such as 5%"
    )
    on_drift: DriftRules = Field(default=DriftRules(), description="what happens if a file's columns differ")
    csv: CsvFormat = Field(default=CsvFormat(), description="how CSV files are written")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for i, column in enumerate(self.columns):
            check_column_name(column.name, f"columns[{i}].name")
        places = {column.name: f"columns[{i}].name" for i, column in enumerate(self.columns)}
        try:
            refuse_same_names((column.name for column in self.columns), "")
        except InvalidSchema as e:
            raise InvalidSchema(e.message, field=places.get(e.field or "", "columns")) from e
        for i, column in enumerate(self.columns):
            if column.default is not None:
                try:
                    self.default_of(column)
                except InvalidRequest as e:
                    raise _within(f"columns[{i}].default", e) from e
        self.expressions  # noqa: B018  # refuses wrong ones
        for i, one in enumerate(self.filters):
            one.predicate(self.table_schema, f"filters[{i}]")
        return self

    @cached_property
    def table_schema(self) -> TableSchema:
        """The table's columns. None is required: what must not be null is a rule of the file, and can change."""
        return TableSchema(tuple(types.Field(column.name, column.kind) for column in self.columns))

    @cached_property
    def expressions(self) -> dict[str, Expression]:
        """The expressions of computed columns, by column."""
        plain = TableSchema(tuple(types.Field(c.name, c.kind) for c in self.columns if c.expression is None))
        resolve = columns_of(plain)
        return {
            column.name: read_assignment(
                types.Field(column.name, column.kind), {"expression": column.expression}, resolve, f"columns[{i}]"
            )
            for i, column in enumerate(self.columns)
            if column.expression is not None
        }

    @property
    def predicates(self) -> tuple[tuple[str, Predicate], ...]:
        """Each filter's rule and condition, in order."""
        return tuple(
            (one.rule, one.predicate(self.table_schema, f"filters[{i}]")) for i, one in enumerate(self.filters)
        )

    def default_of(self, column: DatasetColumn) -> Any:
        """The default of a column as a value of its type; None if it has none."""
        if column.default is None:
            return None
        value = _exact(column.default)
        if isinstance(column.kind, DecimalType) or column.kind == Primitive("string"):
            value = str(value).lower() if isinstance(value, bool) else str(value)
        return read_literal(column.kind, value, "default")

    def stored(self) -> dict[str, Any]:
        """The file as JSON, without keys that it does not set."""
        value = self.model_dump(mode="json", exclude_unset=True)
        if self.max_rejects is not None:
            value["max_rejects"] = (
                self.max_rejects.count if self.max_rejects.count is not None else str(self.max_rejects)
            )
        return value


def _within(path: str, error: FirnError) -> FirnError:
    return InvalidFilter(f"{path}: {error.message.partition(': ')[2] or error.message}", field=path)
