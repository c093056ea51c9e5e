"""The rows of a file as SQL: read as text, converted, computed, and numbered by the first rule that they break."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.engine.sql.convert import converted, transformed
from service.engine.sql.sql import Parameters, fitted, identifier, literal, spark_type, where
from service.model.ingest.reading import (
    LINE_COLUMN,
    PROBLEM_COLUMN,
    RAW_COLUMN,
    Cleaning,
    ColumnRule,
    ReadableFile,
    Rule,
)
from service.model.schema.types import Field, Primitive

# The text of a record, its place, what is wrong with it, its fields, and the number of the first rule that it breaks.
RAW, LINE, PROBLEM = RAW_COLUMN, LINE_COLUMN, PROBLEM_COLUMN
FIELDS, RULE = "_firn_fields", "_firn_rule"
# A row of a split that is not the first one has a line number that depends on the lines before the split.
START, NUMBER = "_firn_start", "_firn_number"
# The name of the file of a row, if several are read at once.
FILE_NAME = "_firn_file_name"
_BAD = "_firn_bad"
# The parts of a record between its delimiters.
_PARTS = "_firn_parts"
_BARRIER, _N, PROBLEM_RULE = "monotonically_increasing_id()", "_firn_n", "_firn_unreadable"
# True, and keeps Spark from repeating what is below it.
COMPUTED_ONCE = f"{_N} >= 0"
IS_GOOD, IS_REJECTED = f"{RULE} IS NULL AND {COMPUTED_ONCE}", f"{RULE} IS NOT NULL AND {COMPUTED_ONCE}"
_STRING = Primitive("string")
# Spark makes one method of a layer, and Java never compiles a method of more than 8,000 bytes. A layer of more columns
# than these is faster if Spark does not join it to the others: then it divides the layer into many methods.
MOST_JOINED = 12

Constants = Sequence[tuple[Field, Mapping[str, Any]]]
"""Columns that have one value in all rows of a file, with the value by the file's name."""


@dataclass(frozen=True)
class FieldSource:
    """A field of the file: its reference in SQL, and Spark's type of it."""

    text: str
    type: str


def parsed(file: ReadableFile, source: str, parameters: Parameters) -> str:
    """The records of a text file, with their fields as a struct of texts; `source` has RAW and maybe PROBLEM."""
    columns = ", ".join(f"{identifier(f'f{i}')} STRING" for i in range(len(file.fields)))
    if file.format == "csv":
        options = {"sep": file.delimiter, "quote": file.quote, "escape": file.quote, "nullValue": "\x00"}
        # A record with more fields than that would fail the job; one with too many is rejected.
        options |= {"maxCharsPerColumn": "-1", "maxColumns": str(max(100_000, 2 * len(file.fields)))}
        schema = f"{columns}, {_BAD} STRING"
        function = "from_csv"
    else:
        options = {}
        columns = ", ".join(f"{identifier(name)} STRING" for name in file.fields)
        schema = ", ".join(filter(None, (columns, f"{_BAD} STRING")))
        function = "from_json"
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    given = ", ".join(parameters.add(part) for pair in options.items() for part in pair)
    value = f"{function}({RAW}, {_quoted(schema)}, map({given}))"
    if not _may_be_simple(file):
        return f"(SELECT *, {value} AS {FIELDS}, {_BARRIER} AS {_N} FROM {source})"
    parts = f"split({RAW}, {parameters.add(_pattern(file.delimiter))}, -1)"
    source = f"(SELECT *, {parts} AS {_PARTS}, {_BARRIER} AS {_N} FROM {source})"
    again = f"* EXCEPT ({_N}), {_N} + {_BARRIER} AS {_N}"
    simple = [f"get({_PARTS}, {i})" for i in range(len(file.fields))]
    tests = [f"size({_PARTS}) = {len(simple)}"]
    if file.has_quotes:
        quote = parameters.add(file.quote)
        unquoted = ", ".join(f"{_unquoted(part, quote)} AS _firn_p{i}" for i, part in enumerate(simple))
        source = f"(SELECT {again}, {unquoted} FROM {source})"
        simple = [f"_firn_p{i}" for i in range(len(simple))]
        tests += (f"NOT contains({part}, {quote})" for part in simple)
    named = ", ".join(f"'f{i}', {text}" for i, text in enumerate(simple))
    fields = f"named_struct({named}, '{_BAD}', CAST(NULL AS STRING))"
    value = f"CASE WHEN {' AND '.join(tests)} THEN {fields} ELSE {value} END"
    return f"(SELECT {again}, {value} AS {FIELDS} FROM {source})"


def _may_be_simple(file: ReadableFile) -> bool:
    """Whether records are worth splitting at their delimiters, which takes half as long as parsing them, unless it
    makes the code too long."""
    return file.format == "csv" and len(file.fields) <= MOST_JOINED and not file.is_split and not file.has_nul


def _unquoted(part: str, quote: str) -> str:
    """A part of a record without the quotes around it. If it has others, it is none of the record's fields."""
    has_both = f"startswith({part}, {quote}) AND endswith({part}, {quote}) AND length({part}) > 1"
    return f"CASE WHEN {has_both} THEN substr({part}, 2, length({part}) - 2) ELSE {part} END"


def _pattern(delimiter: str) -> str:
    """A regular expression for a character, in a form that Java splits at without one."""
    return delimiter if delimiter.isalnum() or not delimiter.isascii() else f"\\{delimiter}"


def field_sources(file: ReadableFile) -> dict[str, FieldSource]:
    """The fields of a text file by their names, in the result of `parsed`."""
    names = [f"f{i}" for i in range(len(file.fields))] if file.format == "csv" else file.fields
    return {
        name: FieldSource(f"{FIELDS}.{identifier(inner)}", "string")
        for name, inner in zip(file.fields, names, strict=True)
    }


def record_problem(file: ReadableFile) -> str:
    """Whether a record of a text file cannot be read as one."""
    found = [f"{FIELDS}.{_BAD} IS NOT NULL"]
    if file.is_split:
        found.append(PROBLEM)
    if file.has_invalid_text:
        found.append(f"NOT is_valid_utf8({RAW})")
    if file.format == "json":
        found.append(f"NOT startswith(ltrim({RAW}), '{{')")
    return " OR ".join(found)


def cleaned(
    cleaning: Cleaning,
    file: ReadableFile,
    fields: dict[str, FieldSource],
    source: str,
    problem: str,
    kept: tuple[str, ...],
    parameters: Parameters,
) -> str:
    """The rows of the table, with RULE: null, or the number of the first broken rule; and the columns `kept`."""
    names = [identifier(name) for name in kept]
    plain = [_Plain(column, fields.get(column.field or ""), i) for i, column in enumerate(cleaning.columns)]
    plain = [one for one in plain if one.column.expression is None]
    computed = [column for column in cleaning.columns if column.expression is not None]
    rows = _Layers(source, is_counted=not file.is_typed)
    given = [one.given(file, parameters) for one in plain]
    rows.add(names, f"CASE WHEN {problem} THEN 0 END AS {PROBLEM_RULE}", *given)
    rows.add(names, PROBLEM_RULE, *(one.shown for one in plain))
    number = _Numbers()
    checks = [f"WHEN {PROBLEM_RULE} = 0 THEN {number.next()}"]
    for one in plain:
        if not cleaning.keeps_failed_values:
            checks.append(f"WHEN {one.failed} THEN {number.next()}" if one.is_converted else number.skip())
        if not one.column.nullable:
            checks.append(f"WHEN {one.value(parameters)} IS NULL THEN {number.next()}")
    values = (f"{one.value(parameters)} AS {identifier(one.column.name)}" for one in plain)
    rows.add(names, *values, f"CASE {' '.join(filter(None, checks))} END AS {RULE}")
    guards = {c.name: f"_firn_c{i}" for i, c in enumerate(computed)} if cleaning.guards_expressions else {}
    if computed:
        read = [RULE, *(identifier(one.column.name) for one in plain)]
        if guards:
            rows.add(names, *read, *(f"{_is_computable(c, parameters)} AS {guards[c.name]}" for c in computed))
        listed = (f"{_computed(c, guards.get(c.name), parameters)} AS {identifier(c.name)}" for c in computed)
        rows.add(names, *read, *guards.values(), *listed)
    later = []
    for column in computed:
        if not cleaning.keeps_failed_values:
            guard = guards.get(column.name)
            later.append(f"WHEN NOT {guard} THEN {number.next()}" if guard else number.skip())
        if not column.nullable:
            later.append(f"WHEN {identifier(column.name)} IS NULL THEN {number.next()}")
    later = [check for check in later if check]
    later += [f"WHEN NOT coalesce({where(p, parameters)}, FALSE) THEN {number.next()}" for _, p in cleaning.filters]
    rule = f"coalesce({RULE}, CASE {' '.join(later)} END) AS {RULE}" if later else RULE
    rows.add(names, *(identifier(column.name) for column in cleaning.columns), rule)
    return rows.text


class _Layers:
    """SELECTs inside each other. Each is computed once, however often the outer ones use its columns: Spark repeats an
    expression for each of its uses, and in filters too, unless a value of this function stands beside it."""

    def __init__(self, source: str, *, is_counted: bool) -> None:
        self._source, self._is_first = source, not is_counted

    def add(self, names: Sequence[str], *outputs: str) -> None:
        count = f"{_BARRIER} AS {_N}" if self._is_first else f"{_N} + {_BARRIER} AS {_N}"
        self._source, self._is_first = f"(SELECT {', '.join([*names, *outputs, count])} FROM {self._source})", False

    @property
    def text(self) -> str:
        return self._source


@dataclass(frozen=True)
class _Plain:
    """A column that is read from the file: what the file gives for it, and the same in the column's type."""

    column: ColumnRule
    field: FieldSource | None
    number: int

    @property
    def is_converted(self) -> bool:
        return self.field is not None and self._converted != self._given

    def given(self, file: ReadableFile, parameters: Parameters) -> str:
        if self.field is None:
            return f"CAST(NULL AS {spark_type(self.column.type)}) AS {self._given}"
        return f"{_given(self.column, self.field, file, parameters)} AS {self._given}"

    @property
    def shown(self) -> str:
        """The column in the layer that converts."""
        return f"{self._given}, {self._converted} AS {self._value}" if self.is_converted else self._given

    @property
    def failed(self) -> str:
        return f"{self._value} IS NULL AND {self._given} IS NOT NULL"

    def value(self, parameters: Parameters) -> str:
        value = self._value if self.is_converted else self._given
        if self.column.default is None:
            return value
        default = literal(self.column.type, self.column.default, parameters)
        return f"CASE WHEN {self._given} IS NULL THEN {default} ELSE {value} END"

    @property
    def _given(self) -> str:
        return f"_firn_g{self.number}"

    @property
    def _value(self) -> str:
        return f"_firn_v{self.number}"

    @property
    def _converted(self) -> str:
        assert self.field is not None
        source = "string" if self.column.type == _STRING else self.field.type
        return converted(self._given, source, self.column.type)


def of_one_file(values: Sequence[tuple[Field, Any]]) -> Constants:
    """The columns that have the same value in all rows of the only file that is read."""
    return [(field, {"": value}) for field, value in values]


def rows_of_table(cleaning: Cleaning, source: str, constants: Constants, parameters: Parameters) -> str:
    """The rows that break no rule, with the table's internal columns."""
    listed = [identifier(column.name) for column in cleaning.columns]
    return f"SELECT {', '.join([*listed, *_by_file(constants, parameters)])} FROM {source} WHERE {IS_GOOD}"


def _by_file(constants: Constants, parameters: Parameters) -> Iterator[str]:
    for field, values in constants:
        value = literal(field.type, next(iter(values.values())), parameters)
        if len(set(values.values())) > 1:
            pairs = ", ".join(f"{parameters.add(k)}, {literal(field.type, v, parameters)}" for k, v in values.items())
            value = f"element_at(map({pairs}), {FILE_NAME})"
        yield f"{value} AS {identifier(field.name)}"


def quarantined(source: str, rules: Sequence[Rule], line: str, constants: Constants, parameters: Parameters) -> str:
    """Rejected or replayed rows as rows of the quarantine table."""
    texts = ", ".join(parameters.add(rule.text) for rule in rules)
    names = ", ".join(parameters.add(rule.column or "") for rule in rules)
    raw = f"make_valid_utf8({RAW})"
    # A replayed row breaks none. Spark takes element_at for not null, though its index may be.
    rule = f"CASE WHEN {RULE} IS NULL THEN '' ELSE element_at(array({texts}), {RULE} + 1) END"
    column = f"CASE WHEN {RULE} IS NOT NULL THEN nullif(element_at(array({names}), {RULE} + 1), '') END"
    listed = [f"{line} AS line", f"{raw} AS raw", f"{rule} AS rule", f"{column} AS column_name"]
    listed += _by_file(constants, parameters)
    return f"SELECT {', '.join(listed)} FROM {source}"


def line_number(file: ReadableFile, starts: list[int], split: int) -> str:
    """The line of a record: of a text file by its number in its split and the lines before that split."""
    if file.is_split:
        return LINE
    listed = ", ".join(map(str, starts))
    return f"element_at(array({listed}), CAST({START} / {split} AS INT) + 1) + {NUMBER} + 1"


def counted_rules(rules: tuple[Rule, ...]) -> list[str]:
    """The aggregates that count the rows of each rule."""
    return [f"count_if({RULE} = {i})" for i in range(len(rules))]


class _Numbers:
    """Numbers the rules in the order of `Cleaning.rules`."""

    def __init__(self) -> None:
        self._last = -1

    def next(self) -> int:
        self._last += 1
        return self._last

    def skip(self) -> str:
        self._last += 1
        return ""


def _given(column: ColumnRule, found: FieldSource, file: ReadableFile, parameters: Parameters) -> str:
    """What the file has for a column, before it is converted; null if it has nothing."""
    text = found.text
    if found.type != "string":
        if column.type != _STRING:
            return text
        return transformed(converted(text, found.type, _STRING), column.transforms)
    is_text = column.type == _STRING
    text = text if is_text else f"trim({text})"
    if file.null_values:
        listed = ", ".join(parameters.add(value) for value in file.null_values)
        text = f"CASE WHEN NOT {text} IN ({listed}) THEN {text} END"
    text = transformed(text, column.transforms)
    return f"nullif({text}, '')" if file.format == "csv" or not is_text else text


def _computed(column: ColumnRule, guard: str | None, parameters: Parameters) -> str:
    assert column.expression is not None
    text = fitted(column.type, column.expression, parameters)
    if column.default is not None:
        text = f"coalesce({text}, {literal(column.type, column.default, parameters)})"
    return text if guard is None else f"CASE WHEN {guard} THEN {text} END"


def _is_computable(column: ColumnRule, parameters: Parameters) -> str:
    """Whether an expression can be computed for a row, as `derived.followed` finds it out."""
    assert column.expression is not None
    text = fitted(column.type, column.expression, parameters)
    tried = f"try_to_binary(CASE WHEN {text} IS NULL THEN '00' ELSE '01' END)"
    return f"element_at(transform(array(0), _firn_x -> {tried} IS NOT NULL), 1)"


def _quoted(text: str) -> str:
    """A string literal, for an argument that must be one."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# What the texts of a column may all be, the first type that fits first. 007 is no number, but a text.
_GUESSES = {
    "BOOLEAN": "lower({0}) IN ('true', 'false')",
    "BIGINT": "{0} RLIKE r'^[+-]?(0|[1-9]\\d*)$' AND try_cast({0} AS BIGINT) IS NOT NULL",
    "DOUBLE": "{0} RLIKE r'^[+-]?(0|[1-9]\\d*)?(\\.\\d*)?([eE][+-]?\\d+)?$'",
    "DATE": "",
    "TIMESTAMP": "",
}
_GUESSED = {"DOUBLE": Primitive("double"), "DATE": Primitive("date"), "TIMESTAMP": Primitive("timestamp")}


def guesses(fields: dict[str, FieldSource], file: ReadableFile, parameters: Parameters) -> list[str]:
    """For each field, how many of its values are of each of the types `guessed` names, and how many there are."""
    outputs = []
    for source in fields.values():
        column = ColumnRule("", Primitive("double"), "")
        text = _given(column, source, file, parameters)
        for name, test in _GUESSES.items():
            tests = [test.format(text)] if test else []
            if name in _GUESSED:
                tests.append(f"{converted(text, 'string', _GUESSED[name])} IS NOT NULL")
            outputs.append(f"count_if({' AND '.join(tests)})")
        outputs.append(f"count({text})")
    return outputs


def guessed(counts: Sequence[int], fields: Sequence[str]) -> dict[str, str]:
    """The type of each field, given the counts of `guesses`; text if no other type fits all of its values."""
    width, found = len(_GUESSES) + 1, {}
    for i, name in enumerate(fields):
        *fitting, values = counts[i * width : (i + 1) * width]
        types = (kind for kind, count in zip(_GUESSES, fitting, strict=True) if values and count == values)
        found[name] = next(types, "VARCHAR")
    return found


# The types that dataset files have for Spark's.
_DATASET_TYPES = {
    **dict.fromkeys(("tinyint", "smallint", "int"), "INTEGER"),
    "bigint": "BIGINT",
    **dict.fromkeys(("float", "double"), "DOUBLE"),
    "boolean": "BOOLEAN",
    "date": "DATE",
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "TIMESTAMP"),
}


def dataset_type(spark_type: str) -> str:
    """The type of a dataset file for a type of Spark; text for what has none of its own."""
    if spark_type.startswith("decimal"):
        return spark_type.upper()
    return _DATASET_TYPES.get(spark_type, "VARCHAR")
