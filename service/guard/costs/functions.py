"""How large the results of Spark's functions can be, by the classes of their expressions.

A class without a rule makes nothing larger than its arguments together. Add a rule for one that does.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from service.guard.costs.bounds import DAY, NUMBER_BYTES, Bound, array, hull, numbers, record
from service.guard.costs.limits import ASSUMED_ITEMS, ASSUMED_NUMBER
from service.guard.functions import split_words
from service.model.patterns.replacing import replacement

Rule = Callable[[Sequence[Bound]], Bound]
_CHARACTER = 4.0  # the most bytes of a character
_SLOT = 16.0  # what an element of an array costs beside its value
_DAYS = 10_000_000.0  # a larger number is a time, a smaller one a date
_SPECIFIER = re.compile(r"%(\d+\$)?[-#+ 0,(<]*(\d*)(?:\.(\d*))?")
# Numbers that are small whatever they are made of.
SMALL = split_words(
    """
    Ascii BitLength BitwiseCount DayOfMonth DayOfWeek DayOfYear Hour HourOfTime Length LengthOfJsonArray Minute Month
    OctetLength Quarter Second Size ArraySize StringInstr StringLocate WeekDay WeekOfYear Year YearOfWeek FindInSet
    ArrayPosition DatePart Extract
    """
)
_YES_OR_NO = split_words(
    """
    And ArrayContains ArrayExists ArrayForAll ArraysOverlap Between Contains EndsWith EqualNullSafe EqualTo Exists
    GreaterThan GreaterThanOrEqual In InSubquery IsNaN IsNotNull IsNull LessThan LessThanOrEqual Like MapContainsKey
    Not Or RLike StartsWith
    """
)
# How many times larger than its arguments a text can become.
_GROWTH = {
    **dict.fromkeys(("UrlEncode", "Invoke", "StaticInvoke", "Mask"), 4.0),
    **dict.fromkeys(("Base64", "Hex", "Quote", "StringTranslate", "Encode", "StringDecode", "Decode"), 4.0),
    **dict.fromkeys(("StructsToJson", "StructsToCsv", "Bin", "Conv"), 8.0),
}


def _texts(args: Sequence[Bound], text: str | None = None) -> Bound:
    return Bound(sum(a.size for a in args), 0, 0, text=text, known=all(a.known for a in args))


def _count(bound: Bound) -> float:
    return max(bound.high, 0.0)


def _sized(size: float, args: Sequence[Bound]) -> Bound:
    return replace(_texts(args), size=size)


def _repeat(args: Sequence[Bound]) -> Bound:
    return _sized(args[0].size * _count(args[1]), args)


def _padded(args: Sequence[Bound]) -> Bound:
    one = max(1.0, _CHARACTER if not all(a.text and a.text.isascii() for a in args[2:]) else 1.0)
    return _sized(_count(args[1]) * one, args)


def _spaces(args: Sequence[Bound]) -> Bound:
    return _sized(_count(args[0]), args)


def _array_repeat(args: Sequence[Bound]) -> Bound:
    return array(args[0], _count(args[1]))


def _sequence(args: Sequence[Bound]) -> Bound:
    start, stop = args[0], args[1]
    step = 1.0
    if len(args) > 2 and args[2].low * args[2].high > 0:
        step = min(abs(args[2].low), abs(args[2].high))
    span = max(stop.high - start.low, start.high - stop.low, 0.0)
    if len(args) > 2 and args[2].items == -1.0:  # an interval, and so a sequence of dates or times
        step = step if span > _DAYS else step / DAY
        if not (start.known and stop.known):
            return array(hull([start, stop]), 100 * ASSUMED_ITEMS)
    return array(hull([start, stop]), span / step + 1)


def _format(args: Sequence[Bound]) -> Bound:
    form, values = args[0], args[1:]
    largest = max((a.size for a in values), default=0.0) + 400
    if form.text is None:
        return _sized(math.inf, args)
    size = float(len(form.text))
    for _, width, precision in _SPECIFIER.findall(form.text):
        size += max(float(width or 0), float(precision or 0)) + largest
    return _sized(size, args)


def _format_number(args: Sequence[Bound]) -> Bound:
    return _sized(400 + 2 * args[1].size + _count(args[1]), args)


def _concat(args: Sequence[Bound]) -> Bound:
    if any(a.element for a in args):
        return _together(args)
    literal = [a.text for a in args]
    return _texts(args, "".join(t for t in literal if t) if None not in literal else None)


def _together(args: Sequence[Bound]) -> Bound:
    inside = hull([a.inside for a in args])
    return array(inside, sum(a.items for a in args), sum(a.size for a in args))


def _concat_ws(args: Sequence[Bound]) -> Bound:
    count = sum(a.items for a in args[1:])
    return _sized(sum(a.size for a in args[1:]) + args[0].size * count, args)


def _array_join(args: Sequence[Bound]) -> Bound:
    rest = sum(a.size for a in args[1:])
    return _sized(args[0].size * 2 + rest * args[0].items, args)


def _replaced(args: Sequence[Bound]) -> Bound:
    found = max(len(args[1].text or ""), 1)
    return _sized(args[0].size * max(1.0, args[2].size / found), args)


def _pattern_replaced(args: Sequence[Bound]) -> Bound:
    pattern, new = args[1].text or "", args[2].text
    if new is None:  # it may name two groups
        found = replacement(pattern, "$1$2")
        found = replace(found, times=found.times + args[2].size, plus=args[2].size)
    else:
        found = replacement(pattern, new)
    return _sized(found.size(args[0].size), args)


def _split(args: Sequence[Bound]) -> Bound:
    text = args[0]
    return array(Bound(text.size, known=text.known), text.size + 1, text.size * (1 + _SLOT))


def _flatten(args: Sequence[Bound]) -> Bound:
    inside = args[0].inside
    return array(inside.inside, args[0].items * inside.items, args[0].size)


def _zipped(args: Sequence[Bound]) -> Bound:
    items = max(a.items for a in args)
    return array(record([a.inside for a in args]), items, sum(a.size for a in args) + items * _SLOT)


def _insert(args: Sequence[Bound]) -> Bound:
    items = args[0].items + max(abs(args[1].low), abs(args[1].high)) + 1
    inside = hull([args[0].inside, args[2]])
    return array(inside, items, args[0].size + args[2].size + items * NUMBER_BYTES)


def _first(args: Sequence[Bound]) -> Bound:
    return args[0]


def _item(args: Sequence[Bound]) -> Bound:
    return args[0].inside


def _choice(args: Sequence[Bound]) -> Bound:
    return hull(args)


def _case(args: Sequence[Bound]) -> Bound:
    return hull([*args[1::2], *(args[-1:] if len(args) % 2 else ())])


def _if(args: Sequence[Bound]) -> Bound:
    return hull(args[1:])


def _least(args: Sequence[Bound]) -> Bound:
    return replace(hull(args), low=min(a.low for a in args), high=min(a.high for a in args))


def _greatest(args: Sequence[Bound]) -> Bound:
    return replace(hull(args), low=max(a.low for a in args), high=max(a.high for a in args))


def _add(args: Sequence[Bound]) -> Bound:
    return numbers(args[0].low + args[1].low, args[0].high + args[1].high, args)


def _subtract(args: Sequence[Bound]) -> Bound:
    return numbers(args[0].low - args[1].high, args[0].high - args[1].low, args)


def _multiply(args: Sequence[Bound]) -> Bound:
    products = [a * b for a in (args[0].low, args[0].high) for b in (args[1].low, args[1].high)]
    return numbers(min(products), max(products), args)


def _divide(args: Sequence[Bound]) -> Bound:
    # A divisor may be anything between -1 and 1, unless it is a literal.
    least = min(abs(args[1].low), abs(args[1].high)) if args[1].low * args[1].high > 0 else 1.0
    most = max(abs(args[0].low), abs(args[0].high)) / (least or 1.0)
    return numbers(-most if args[0].low < 0 or args[1].low < 0 else 0.0, most, args)


def _remainder(args: Sequence[Bound]) -> Bound:
    most = min(max(abs(a.low), abs(a.high)) for a in args)
    return numbers(-most if args[0].low < 0 else 0.0, most, args)


def _power(args: Sequence[Bound]) -> Bound:
    base, exponent = max(abs(args[0].low), abs(args[0].high)), args[1].high
    try:
        most = max(base**exponent, 1.0)
    except (OverflowError, ZeroDivisionError):
        most = math.inf
    return numbers(-most, most, args)


def _negative(args: Sequence[Bound]) -> Bound:
    return numbers(-args[0].high, -args[0].low, args)


def _absolute(args: Sequence[Bound]) -> Bound:
    most = max(abs(args[0].low), abs(args[0].high))
    return numbers(0.0, most, args)


def _shifted(args: Sequence[Bound]) -> Bound:
    return _multiply([args[0], Bound(low=1.0, high=2.0 ** min(_count(args[1]), 63))])


def _between(args: Sequence[Bound]) -> Bound:
    return numbers(min(a.low for a in args[:2]), max(a.high for a in args[:2]), args)


def _random(args: Sequence[Bound]) -> Bound:
    return Bound(low=-10, high=10, known=True)


def _root(args: Sequence[Bound]) -> Bound:
    most = max(64.0, *(max(abs(a.low), abs(a.high)) for a in args))
    return numbers(-most, most, args)


def _time_apart(args: Sequence[Bound]) -> Bound:
    """The seconds, or a longer unit, between two dates or times."""
    found = _subtract(args[:2])
    most = max(abs(found.low), abs(found.high))
    return numbers(*((-most, most) if most < _DAYS else (-most / 1_000_000, most / 1_000_000)), args[:2])


def _months_apart(args: Sequence[Bound]) -> Bound:
    found = _subtract(args[:2])
    by = 28.0 * (DAY if max(abs(found.low), abs(found.high)) > _DAYS else 1)
    return numbers(found.low / by - 1, found.high / by + 1, args[:2])


def _rounded(args: Sequence[Bound]) -> Bound:
    return numbers(args[0].low - 1, args[0].high + 1, args)


def _moved(args: Sequence[Bound]) -> Bound:
    """A date or time moved by an interval."""
    is_date = max(abs(args[0].low), abs(args[0].high)) < _DAYS
    by = max(abs(args[1].low), abs(args[1].high)) * (40 / 28) / (DAY if is_date else 1)
    return numbers(args[0].low - by, args[0].high + by, args)


def _months_later(args: Sequence[Bound]) -> Bound:
    return numbers(args[0].low + 31 * min(args[1].low, 0), args[0].high + 31 * max(args[1].high, 0), args)


def _of_year(args: Sequence[Bound]) -> Bound:
    return numbers((args[0].low - 1970) * 366, (args[0].high - 1969) * 366, args)


def _written_date(args: Sequence[Bound]) -> Bound:
    if len(args) > 1:  # with a format
        return _now(args)
    return numbers(args[0].low, args[0].high, args[:1])


def _written_time(args: Sequence[Bound]) -> Bound:
    if len(args) > 1:
        return _now_time(args)
    times = DAY if max(abs(args[0].low), abs(args[0].high)) < _DAYS else 1
    return numbers(args[0].low * times, args[0].high * times, args[:1])


def _cased(args: Sequence[Bound]) -> Bound:
    text = args[0].text
    return replace(_texts(args, None if text is None else text.lower()), size=args[0].size * _CHARACTER)


def _last(args: Sequence[Bound]) -> Bound:
    return args[-1]


def _date(args: Sequence[Bound]) -> Bound:
    return numbers(args[0].low, args[0].high, args[:1])


def _now(args: Sequence[Bound]) -> Bound:
    return Bound(low=0, high=40_000, known=True)


def _now_time(args: Sequence[Bound]) -> Bound:
    return Bound(low=0, high=40_000.0 * DAY, known=True)


def _records(args: Sequence[Bound]) -> Bound:
    return record(args)


def _array(args: Sequence[Bound]) -> Bound:
    return array(hull(args), len(args), sum(a.size for a in args))


def _map(args: Sequence[Bound]) -> Bound:
    return array(hull(args), len(args) / 2, sum(a.size for a in args))


RULES: dict[str, Rule] = {
    "StringRepeat": _repeat, "StringSpace": _spaces, "RandStr": _spaces, "ArrayRepeat": _array_repeat,
    **dict.fromkeys(("StringLPad", "StringRPad", "BinaryPad"), _padded), "Sequence": _sequence,
    "FormatString": _format, "FormatNumber": _format_number, "Concat": _concat, "ConcatWs": _concat_ws,
    "ArrayJoin": _array_join, "StringReplace": _replaced, "RegExpReplace": _pattern_replaced,
    **dict.fromkeys(("StringSplit", "RegExpExtractAll", "Sentences", "JsonObjectKeys", "StringToMap"), _split),
    "Flatten": _flatten, "ArraysZip": _zipped, "ArrayInsert": _insert,
    **dict.fromkeys(("ArrayUnion", "ArrayAppend", "ArrayPrepend", "MapConcat", "MapFromArrays"), _together),
    **dict.fromkeys(("ArrayExcept", "ArrayIntersect", "ArrayDistinct", "ArraySort", "SortArray", "Shuffle"), _first),
    **dict.fromkeys(("Slice", "Reverse", "ArrayCompact", "ArrayRemove", "KnownNotNull", "UnaryPositive"), _first),
    **dict.fromkeys(("Alias", "MapKeys", "MapValues", "MapEntries", "MapFromEntries", "Collate"), _first),
    **dict.fromkeys(("Substring", "Left", "Right", "StringTrim", "StringTrimLeft", "StringTrimRight"), _first),
    **dict.fromkeys(("SubstringIndex", "ArrayFilter", "MapFilter", "Max", "Min", "First", "Last"), _first),
    **dict.fromkeys(("MaxBy", "MinBy", "AnyValue", "NthValue"), _first),
    **dict.fromkeys(("WindowExpression", "Lag", "Lead", "Mode"), _first), "OuterReference": _first,
    **dict.fromkeys(("GetArrayItem", "GetMapValue", "ElementAt", "TryElementAt", "Get", "GetStructField"), _item),
    **dict.fromkeys(("ArrayMax", "ArrayMin", "GetArrayStructFields", "UnresolvedExtractValue"), _item),
    **dict.fromkeys(("Coalesce", "Nvl", "IfNull", "NaNvl"), _choice), "CaseWhen": _case, "If": _if,
    "Least": _least, "Greatest": _greatest, "Add": _add, "TryAdd": _add, "Subtract": _subtract,
    "TrySubtract": _subtract, "Multiply": _multiply, "TryMultiply": _multiply,
    **dict.fromkeys(("Divide", "TryDivide", "IntegralDivide"), _divide),
    **dict.fromkeys(("Remainder", "Pmod", "TryMod", "BitwiseAnd"), _remainder), "Pow": _power,
    "Rand": _random, "Randn": _random, "Signum": _random, "NTile": _absolute,
    "TimestampDiff": _time_apart, "MonthsBetween": _months_apart,
    **dict.fromkeys(("Sqrt", "Cbrt", "Log", "Log10", "Log2", "Log1p", "Logarithm"), _root),
    "UnaryMinus": _negative, "Abs": _absolute, "ShiftLeft": _shifted, "Uniform": _between,
    **dict.fromkeys(("Round", "BRound", "Ceil", "Floor", "RoundCeil", "RoundFloor", "Rint"), _rounded),
    **dict.fromkeys(("TruncDate", "LastDay", "NextDay"), _date), "ParseToDate": _written_date,
    **dict.fromkeys(("ParseToTimestamp", "GetTimestamp"), _written_time),
    **dict.fromkeys(("Lower", "Upper", "InitCap"), _cased),
    **dict.fromkeys(("DateAddInterval", "TimestampAddInterval", "TimeAdd", "DateAddYMInterval"), _moved),
    **dict.fromkeys(("TimestampAddYMInterval", "DatetimeSub"), _moved), "DateAdd": _add, "DateSub": _subtract,
    "DateDiff": _subtract, "AddMonths": _months_later, "MakeDate": _of_year, "TruncTimestamp": _last,
    "CurrentDate": _now, "CurrentTimestamp": _now_time, "Now": _now_time, "LocalTimestamp": _now_time,
    **dict.fromkeys(("CreateNamedStruct", "CreateStruct"), _records), "CreateArray": _array, "CreateMap": _map,
}  # fmt: skip


# These return one of their arguments, or a part of it.
PASSING = frozenset(name for name, rule in RULES.items() if rule in (_first, _item, _choice, _case, _if, _last))


def made_of(name: str, args: Sequence[Bound]) -> Bound:
    """The bound of an expression of this class over its arguments."""
    rule = RULES.get(name)
    if rule is not None:
        return rule(args)
    if name in _YES_OR_NO:
        return numbers(0, 1, args)
    if name in SMALL:
        most = max([args[0].size, args[0].items] if args else [1.0])
        return numbers(
            0, max(most, 10_000.0 if name.startswith(("Year", "Day", "Week", "DatePart", "Extract")) else 60.0), args
        )
    return _unknown(name, args)


def _unknown(name: str, args: Sequence[Bound]) -> Bound:
    known = all(a.known for a in args)
    largest = max([ASSUMED_NUMBER, *(max(abs(a.low), abs(a.high)) for a in args)])
    inside = [a.element for a in args if a.element is not None]
    size = sum(a.size for a in args) * _GROWTH.get(name, 1.0) + NUMBER_BYTES
    items = sum(a.items for a in args) or 1.0
    # Of a literal, an unknown function can make any number: no table limits how large it is.
    largest = max(largest, 2.0**31) if known and args else largest
    return Bound(size, -largest, largest, items, hull(inside) if inside else None, known=known)
