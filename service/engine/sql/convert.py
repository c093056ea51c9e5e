"""Conversions of a file's values to the types of columns: strict, and null if a value does not fit."""

from service.engine.sql.sql import spark_type
from service.model.schema.types import ColumnType, DecimalType, Primitive

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FRACTIONS = ("float", "double")
_TEXT_TRANSFORMS = {
    "upper": "upper({})",
    "lower": "lower({})",
    "trim": "trim({})",
    "ltrim": "ltrim({})",
    "rtrim": "rtrim({})",
    "title": "initcap({})",
    "collapse_spaces": r"trim(regexp_replace({}, r'\s+', ' '))",
}
# Java reads more than decimal numbers: 1d, 0x1p3, NaN.
_NOT_A_DECIMAL = "[^0-9eE+.-]"
_TIMESTAMP = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d:?\d\d)?)?$"
_USUAL = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?$"


def transformed(text: str, transforms: tuple[str, ...]) -> str:
    """A text after the transforms of a column, in their order."""
    for name in transforms:
        text = _TEXT_TRANSFORMS[name].format(text)
    return text


def converted(value: str, source: str, kind: ColumnType) -> str:
    """A value of a Spark type in the type of a column; null if it does not fit exactly."""
    target = spark_type(kind)
    if source == target.lower() or (kind == Primitive("string") and source == "string"):
        return value
    if source == "string":
        return from_text(value, kind)
    if kind == Primitive("string"):
        return _as_text(value, source)
    if kind == Primitive("timestamp") and source in ("date", "timestamp"):
        return f"CAST({value} AS TIMESTAMP_NTZ)"
    if kind == Primitive("date") and source.startswith("timestamp"):
        return f"CASE WHEN date_trunc('DAY', {value}) = {value} THEN CAST({value} AS DATE) END"
    if source in _WHOLE and kind != Primitive("boolean") and str(kind) not in ("date", "timestamp"):
        return f"try_cast({value} AS {target})"
    if kind in (Primitive("integer"), Primitive("long")) and (source in _FRACTIONS or source.startswith("decimal")):
        return f"CASE WHEN {value} = floor({value}) THEN try_cast({value} AS {target}) END"
    if kind == Primitive("double") and (source in _FRACTIONS or source.startswith("decimal")):
        return f"CAST({value} AS DOUBLE)"
    if isinstance(kind, DecimalType) and (source in _FRACTIONS or source.startswith("decimal")):
        return from_text(f"CAST({value} AS STRING)", kind)
    return f"CAST(NULL AS {target})"


def from_text(text: str, kind: ColumnType) -> str:
    """A text without spaces around it in the type of a column; null if it is not written as a value of that type."""
    cast = f"try_cast({text} AS {spark_type(kind)})"
    match kind:
        case DecimalType(_, scale):
            return _decimal(text, cast, scale)
        case Primitive("date"):
            # Spark also reads 2024-1-5, and ignores what follows a T.
            return f"CASE WHEN length({text}) = 10 AND CAST({cast} AS STRING) = {text} THEN {cast} END"
        case Primitive("timestamp"):
            # An offset converts to UTC, in which every session runs. Spark reads none that follows minutes.
            follows_minutes = f"length({text}) > 16 AND substr({text}, 17, 1) <> ':'"
            whole = (
                f"CASE WHEN {follows_minutes} THEN concat(left({text}, 16), ':00', substr({text}, 17)) ELSE {text} END"
            )
            moment = f"CAST(try_cast({whole} AS TIMESTAMP) AS TIMESTAMP_NTZ)"
            # Most times have seconds and no offset, and need none of that.
            usual = f"CASE WHEN {text} RLIKE r'{_USUAL}' THEN try_cast({text} AS TIMESTAMP_NTZ)"
            return f"{usual} WHEN {text} RLIKE r'{_TIMESTAMP}' THEN {moment} END"
        case Primitive("double"):
            number = f"CASE WHEN NOT {text} RLIKE '{_NOT_A_DECIMAL}' THEN {cast} END"
            return f"nullif(nullif({number}, DOUBLE('Infinity')), DOUBLE('-Infinity'))"
    return cast


def _decimal(text: str, cast: str, scale: int) -> str:
    """Spark rounds; here digits that the type cannot hold do not convert, unless they are zeros."""
    plain = f"instr({text}, 'e') = 0 AND instr({text}, 'E') = 0"
    fits = f"(instr({text}, '.') = 0 OR length({text}) - instr({text}, '.') <= {scale})"
    zeros = rf"{text} RLIKE r'^[+-]?\d*\.\d{{{scale}}}0*$'"
    exact = f"try_cast({text} AS DOUBLE) = CAST({cast} AS DOUBLE)"
    return f"CASE WHEN {plain} AND ({fits} OR {zeros}) THEN {cast} WHEN NOT ({plain}) AND {exact} THEN {cast} END"


def _as_text(value: str, source: str) -> str:
    if source.startswith(("struct", "array", "map")):
        return f"to_json({value})"
    if source == "binary":
        return f"try_validate_utf8(CAST({value} AS STRING))"
    return f"CAST({value} AS STRING)"
