"""The functions of expressions. Each depends only on its arguments, not on a clock or randomness, and none can make a
huge value from small ones.

The table is complete: docs/reference/expressions.md is generated from it, and the engine calls no other function.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from service.model.expressions.kinds import BOOLEAN, DATE, DOUBLE, INTEGER, LONG, STRING, TIMESTAMPTZ, Kind

Takes = Literal[
    "number", "whole", "long", "text", "shown", "bytes", "boolean", "day", "moment", "time", "written",
    "plain", "any", "alike", "list", "collection", "map", "key", "element",
    "fixed text", "fixed whole", "unit",
]  # fmt: skip
"""What an argument must be. `alike`: of one kind with all such arguments; `fixed`: a literal."""
Gives = Literal["first", "second", "alike", "quotient", "element", "keys"]

UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_SHOWN: dict[str, str] = {
    **dict.fromkeys(("day", "moment", "time"), "date or time"),
    **dict.fromkeys(("any", "alike"), "value"),
    **{"long": "whole", "shown": "plain", "bytes": "text or binary", "written": "text, date or time"},
    **{"list": "array", "collection": "array or map"},
    **{"fixed text": "'text'", "fixed whole": "123", "unit": "'unit'"},
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function with `least` to `most` arguments; if `most` is None, the last kind of `takes` repeats.

    A test computes `example` on the table of docs/reference/filters.md; the result, as text, must be `shows`.
    """

    name: str
    takes: tuple[Takes, ...]
    gives: Kind | Gives
    meaning: str
    example: str
    result: str
    least: int
    most: int | None

    @property
    def signature(self) -> str:
        """Its signature, such as `round(number, [123])`."""
        shown = [_SHOWN.get(takes, takes) for takes in self.takes]
        listed = [word if i < self.least else f"[{word}]" for i, word in enumerate(shown)]
        return f"{self.name}({', '.join(listed)}{', …' if self.most is None else ''})"

    @property
    def count(self) -> str:
        """The number of its arguments, in words."""
        if self.most is None:
            return f"at least {self.least} argument{'s' if self.least > 1 else ''}"
        if self.most == self.least:
            return f"{self.least or 'no'} argument{'' if self.least == 1 else 's'}"
        return f"{self.least} to {self.most} arguments"

    def taken(self, place: int) -> Takes:
        return self.takes[min(place, len(self.takes) - 1)]


def _f(name: str, takes: str, gives: Kind | Gives, meaning: str, example: str, result: str) -> Function:
    """`takes` lists kinds; `?` marks an optional argument, and `+` one that may be repeated."""
    listed = [part.strip() for part in takes.split(",") if part.strip()]
    least = sum(1 for part in listed if not part.endswith("?"))
    most = None if listed and listed[-1].endswith("+") else len(listed)
    kinds: list[Takes] = []
    for part in listed:
        kinds += [known for known in get_args(Takes) if known == part.rstrip("?+")]
    return Function(name, tuple(kinds), gives, meaning, example, result, least, most)


TABLE: dict[str, tuple[Function, ...]] = {
    "Numbers": (
        _f("abs", "number", "first", "absolute value", "abs(-2.5)", "2.5"),
        _f("ceil", "number", LONG, "rounded up to a whole number", "ceil(1.2)", "2"),
        _f("ceiling", "number", LONG, "the same as ceil", "ceiling(-1.2)", "-1"),
        _f("floor", "number", LONG, "rounded down to a whole number", "floor(-1.2)", "-2"),
        _f("round", "number, fixed whole?", "first", "rounded to this many digits, halves away from zero", "round(2.345, 2)", "2.35"),
        _f("bround", "number, fixed whole?", "first", "rounded to this many digits, halves to even", "bround(2.345, 2)", "2.34"),
        _f("sqrt", "number", DOUBLE, "square root; NaN for negative numbers", "sqrt(2)", "1.4142135623730951"),
        _f("cbrt", "number", DOUBLE, "cube root", "cbrt(27)", "3.0"),
        _f("exp", "number", DOUBLE, "e to its power", "exp(1)", "2.7182818284590455"),
        _f("ln", "number", DOUBLE, "natural logarithm; null unless above zero", "ln(10)", "2.302585092994046"),
        _f("log10", "number", DOUBLE, "logarithm to base 10; null unless above zero", "log10(1000)", "3.0"),
        _f("log2", "number", DOUBLE, "logarithm to base 2; null unless above zero", "log2(8)", "3.0"),
        _f("power", "number, number", DOUBLE, "the first to the power of the second", "power(2, 0.5)", "1.4142135623730951"),
        _f("pow", "number, number", DOUBLE, "the same as power", "pow(2, 10)", "1024.0"),
        _f("sign", "number", DOUBLE, "-1, 0 or 1", "sign(-7)", "-1.0"),
        _f("sin", "number", DOUBLE, "sine of an angle in radians", "sin(0)", "0.0"),
        _f("cos", "number", DOUBLE, "cosine of an angle in radians", "cos(0)", "1.0"),
        _f("tan", "number", DOUBLE, "tangent of an angle in radians", "tan(0)", "0.0"),
        _f("asin", "number", DOUBLE, "the angle of a sine", "asin(1)", "1.5707963267948966"),
        _f("acos", "number", DOUBLE, "the angle of a cosine", "acos(1)", "0.0"),
        _f("atan", "number", DOUBLE, "the angle of a tangent", "atan(1)", "0.7853981633974483"),
        _f("atan2", "number, number", DOUBLE, "the angle of a point, given y and x", "atan2(1, 1)", "0.7853981633974483"),
        _f("radians", "number", DOUBLE, "degrees as radians", "radians(180)", "3.141592653589793"),
        _f("degrees", "number", DOUBLE, "radians as degrees", "degrees(pi())", "180.0"),
        _f("pi", "", DOUBLE, "3.14159…", "pi()", "3.141592653589793"),
        _f("mod", "number, number", "alike", "the same as %", "mod(7, 3)", "1"),
        _f("pmod", "number, number", "alike", "the non-negative remainder", "pmod(-7, 3)", "2"),
        _f("try_add", "number, number", "alike", "the sum; null if it is too large", "try_add(2147483647, 1)", "null"),
        _f("try_subtract", "number, number", "alike", "the difference; null if too large", "try_subtract(1, 2)", "-1"),
        _f("try_multiply", "number, number", "alike", "the product; null if too large", "try_multiply(3, 4)", "12"),
        _f("try_divide", "number, number", "quotient", "the quotient; null if the divisor is 0", "try_divide(1, 0)", "null"),
        _f("try_mod", "number, number", "alike", "the remainder; null if the divisor is 0", "try_mod(7, 0)", "null"),
        _f("isnan", "number", BOOLEAN, "whether it is NaN", "isnan(sqrt(-1))", "true"),
        _f("nanvl", "number, number", "alike", "the first, or the second if that is NaN", "nanvl(sqrt(-1), 0)", "0.0"),
    ),
    "Nulls and choices": (
        _f("coalesce", "alike+", "alike", "the first non-null argument", "coalesce(NULL, 2, 3)", "2"),
        _f("ifnull", "alike, alike", "alike", "the first, or the second if that is null", "ifnull(NULL, 'x')", "x"),
        _f("nvl", "alike, alike", "alike", "the same as ifnull", "nvl(NULL, 1.5)", "1.5"),
        _f("nvl2", "any, alike, alike", "alike", "the third if the first is null, else the second", "nvl2(1, 2, 3)", "2"),
        _f("nullif", "alike, alike", "alike", "null if both are equal, else the first", "nullif(0, 0)", "null"),
        _f("if", "boolean, alike, alike", "alike", "the second if the first is true, else the third", "if(1 < 2, 'a', 'b')", "a"),
        _f("greatest", "alike, alike+", "alike", "the greatest non-null argument", "greatest(1, 3, 2)", "3"),
        _f("least", "alike, alike+", "alike", "the least non-null argument", "least(1.5, 3, 2)", "1.5"),
    ),
    "Text": (
        _f("concat", "shown+", STRING, "all joined; null if any is null", "concat('a', 1, 'b')", "a1b"),
        _f("concat_ws", "fixed text, shown+", STRING, "joined with the first between them; nulls are skipped", "concat_ws('-', 'a', NULL, 2)", "a-2"),
        _f("upper", "text", STRING, "in upper case", "upper('Straße')", "STRASSE"),
        _f("lower", "text", STRING, "in lower case", "lower('ABC')", "abc"),
        _f("initcap", "text", STRING, "each word capitalised", "initcap('new york')", "New York"),
        _f("trim", "text", STRING, "without spaces at both ends", "trim('  a ')", "a"),
        _f("ltrim", "text", STRING, "without spaces at its beginning", "ltrim('  a ')", "a "),
        _f("rtrim", "text", STRING, "without spaces at its end", "rtrim('  a ')", "  a"),
        _f("btrim", "text, text", STRING, "without these characters at both ends", "btrim('xxaxx', 'x')", "a"),
        _f("length", "text", INTEGER, "the number of characters", "length('日本')", "2"),
        _f("char_length", "text", INTEGER, "the same as length", "char_length('abc')", "3"),
        _f("substring", "text, whole, whole?", STRING, "from a position (the first is 1, the last -1), up to a length", "substring('abcdef', 2, 3)", "bcd"),
        _f("substr", "text, whole, whole?", STRING, "the same as substring", "substr('abcdef', -2)", "ef"),
        _f("left", "text, whole", STRING, "its first characters", "left('abcdef', 2)", "ab"),
        _f("right", "text, whole", STRING, "its last characters", "right('abcdef', 2)", "ef"),
        _f("split_part", "text, text, whole", STRING, "one of the parts between separators; the first is 1, the last -1", "split_part('a-b-c', '-', 2)", "b"),
        _f("substring_index", "text, text, whole", STRING, "the text before the nth separator; after it, if negative", "substring_index('a.b.c', '.', 2)", "a.b"),
        _f("replace", "text, text, fixed text?", STRING, "every occurrence replaced", "replace('banana', 'na', 'no')", "banono"),
        _f("translate", "text, text, text", STRING, "each character replaced by its counterpart", "translate('abc', 'ab', 'xy')", "xyc"),
        _f("regexp_replace", "text, text, fixed text", STRING, "every match of a regular expression (Java's) replaced; $1 is its first group", "regexp_replace('a1b22', '[0-9]+', '#')", "a#b#"),
        _f("regexp_extract", "text, text, whole?", STRING, "a group of the first match, by default the first one; '' without a match", "regexp_extract('a12b', '([0-9]+)', 1)", "12"),
        _f("regexp_like", "text, text", BOOLEAN, "the same as RLIKE", "regexp_like('abc', 'b')", "true"),
        _f("startswith", "text, text", BOOLEAN, "whether it begins with the second", "startswith('abc', 'ab')", "true"),
        _f("endswith", "text, text", BOOLEAN, "whether it ends with the second", "endswith('abc', 'bc')", "true"),
        _f("contains", "text, text", BOOLEAN, "whether it holds the second", "contains('abc', 'b')", "true"),
        _f("instr", "text, text", INTEGER, "the position of the second in it; 0 if it is not there", "instr('abcabc', 'c')", "3"),
        _f("reverse", "text", STRING, "reversed", "reverse('abc')", "cba"),
        _f("ascii", "text", INTEGER, "the number of its first character", "ascii('A')", "65"),
        _f("get_json_object", "text, text", STRING, "a part of JSON by its path; null if there is none", "get_json_object('{\"a\": {\"b\": 1}}', '$.a.b')", "1"),
    ),
    "Dates and times": (
        _f("year", "time", INTEGER, "its year", "year(DATE '2024-05-17')", "2024"),
        _f("quarter", "time", INTEGER, "its quarter, 1 to 4", "quarter(DATE '2024-05-17')", "2"),
        _f("month", "time", INTEGER, "its month, 1 to 12", "month(DATE '2024-05-17')", "5"),
        _f("day", "time", INTEGER, "its day of the month", "day(DATE '2024-05-17')", "17"),
        _f("dayofmonth", "time", INTEGER, "the same as day", "dayofmonth(DATE '2024-05-17')", "17"),
        _f("dayofweek", "time", INTEGER, "1 for Sunday to 7 for Saturday", "dayofweek(DATE '2024-05-17')", "6"),
        _f("weekday", "time", INTEGER, "0 for Monday to 6 for Sunday", "weekday(DATE '2024-05-17')", "4"),
        _f("dayofyear", "time", INTEGER, "1 to 366", "dayofyear(DATE '2024-05-17')", "138"),
        _f("weekofyear", "time", INTEGER, "its ISO 8601 week", "weekofyear(DATE '2024-05-17')", "20"),
        _f("hour", "moment", INTEGER, "its hour, in UTC", "hour(TIMESTAMP '2024-05-17 13:45:10')", "13"),
        _f("minute", "moment", INTEGER, "its minute", "minute(TIMESTAMP '2024-05-17 13:45:10')", "45"),
        _f("second", "moment", INTEGER, "its second", "second(TIMESTAMP '2024-05-17 13:45:10')", "10"),
        _f("date_trunc", "unit, time", "second", "the beginning of its year, quarter, month, week, day, hour, minute or second", "date_trunc('month', DATE '2024-05-17')", "2024-05-01"),
        _f("date_add", "day, whole", DATE, "this many days later", "date_add(DATE '2024-02-28', 2)", "2024-03-01"),
        _f("date_sub", "day, whole", DATE, "this many days earlier", "date_sub(DATE '2024-03-01', 1)", "2024-02-29"),
        _f("datediff", "day, day", INTEGER, "the days from the second to the first", "datediff(DATE '2024-03-01', DATE '2024-02-01')", "29"),
        _f("add_months", "day, whole", DATE, "this many months later; the last day of the month if there is no such day", "add_months(DATE '2024-01-31', 1)", "2024-02-29"),
        _f("months_between", "moment, moment", DOUBLE, "the months from the second to the first", "months_between(DATE '2024-03-01', DATE '2024-01-15')", "1.5483871"),
        _f("last_day", "day", DATE, "the last day of its month", "last_day(DATE '2024-02-10')", "2024-02-29"),
        _f("next_day", "day, text", DATE, "the next such weekday", "next_day(DATE '2024-05-17', 'MO')", "2024-05-20"),
        _f("make_date", "whole, whole, whole", DATE, "from a year, a month and a day", "make_date(2024, 2, 29)", "2024-02-29"),
        _f("to_date", "written, text?", DATE, "the day of a time, or of text in a format such as 'dd.MM.yyyy'", "to_date('17.05.2024', 'dd.MM.yyyy')", "2024-05-17"),
        _f("try_to_date", "written, text?", DATE, "the same; null if the text is not one", "try_to_date('soon')", "null"),
        _f("to_timestamp", "written, text?", TIMESTAMPTZ, "from text, in a format if given; in UTC without an offset", "to_timestamp('2024-05-17 13:45:10')", "2024-05-17 13:45:10"),
        _f("try_to_timestamp", "written, text?", TIMESTAMPTZ, "the same; null if the text is not one", "try_to_timestamp('soon')", "null"),
        _f("date_format", "moment, text", STRING, "as text, in a format such as 'yyyy-MM'", "date_format(DATE '2024-05-17', 'yyyy-MM')", "2024-05"),
        _f("from_utc_timestamp", "moment, text", TIMESTAMPTZ, "the local time of a zone at this time in UTC", "from_utc_timestamp(TIMESTAMP '2024-07-01 12:00:00', 'Europe/Zurich')", "2024-07-01 14:00:00"),
        _f("to_utc_timestamp", "moment, text", TIMESTAMPTZ, "the time in UTC of a zone's local time", "to_utc_timestamp(TIMESTAMP '2024-07-01 12:00:00', 'Europe/Zurich')", "2024-07-01 10:00:00"),
        _f("timestamp_seconds", "number", TIMESTAMPTZ, "this many seconds after 1970", "timestamp_seconds(1715953510)", "2024-05-17 13:45:10"),
        _f("timestamp_millis", "long", TIMESTAMPTZ, "this many milliseconds after 1970", "timestamp_millis(1715953510123)", "2024-05-17 13:45:10.123"),
        _f("timestamp_micros", "long", TIMESTAMPTZ, "this many microseconds after 1970", "timestamp_micros(1715953510123456)", "2024-05-17 13:45:10.123456"),
        _f("unix_seconds", "moment", LONG, "the seconds since 1970", "unix_seconds(TIMESTAMP '2024-05-17 13:45:10Z')", "1715953510"),
        _f("unix_millis", "moment", LONG, "the milliseconds since 1970", "unix_millis(TIMESTAMP '2024-05-17 13:45:10Z')", "1715953510000"),
        _f("unix_micros", "moment", LONG, "the microseconds since 1970", "unix_micros(TIMESTAMP '2024-05-17 13:45:10Z')", "1715953510000000"),
    ),
    "Arrays and maps": (
        _f("size", "collection", INTEGER, "the number of elements", "size(map_keys(labels))", "1"),
        _f("array_contains", "list, element", BOOLEAN, "whether it holds such an element", "array_contains(tags, 'red')", "true"),
        _f("array_position", "list, element", LONG, "the position of the first such element; 0 if there is none", "array_position(tags, 'red')", "1"),
        _f("array_min", "list", "element", "its least element", "array_min(sizes)", "1"),
        _f("array_max", "list", "element", "its greatest element", "array_max(sizes)", "2"),
        _f("element_at", "collection, key", "element", "by position (the first is 1, the last -1) or by key; an error beyond the array", "element_at(tags, 1)", "red"),
        _f("try_element_at", "collection, key", "element", "the same; null beyond the array", "try_element_at(sizes, 9)", "null"),
        _f("map_keys", "map", "keys", "its keys, as an array", "map_keys(labels)", "[team]"),
    ),
    "Digests": (
        _f("md5", "bytes", STRING, "as 32 hexadecimal digits", "md5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
        _f("sha1", "bytes", STRING, "as 40 hexadecimal digits", "sha1('abc')", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        _f("sha2", "bytes, fixed whole", STRING, "of 224, 256, 384 or 512 bits, as hexadecimal digits", "sha2('abc', 256)", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        _f("crc32", "bytes", LONG, "a checksum", "crc32('abc')", "891568578"),
        _f("hash", "plain+", INTEGER, "a 32-bit hash of all arguments", "hash('abc', 1)", "945627151"),
        _f("xxhash64", "plain+", LONG, "a 64-bit hash of all arguments", "xxhash64('abc', 1)", "615990704253164077"),
        _f("hex", "bytes", STRING, "as hexadecimal digits", "hex('abc')", "616263"),
        _f("base64", "bytes", STRING, "as base64", "base64('abc')", "YWJj"),
    ),
}  # fmt: skip
FUNCTIONS: dict[str, Function] = {function.name: function for group in TABLE.values() for function in group}
