"""The steps of matching patterns: regular expressions and LIKE."""

import re
from collections.abc import Sequence

from service.errors import QueryTooExpensive
from service.guard.costs.bounds import Bound
from service.guard.costs.limits import shown, sql_name, too_expensive
from service.model.patterns.backtracking import MOST_STEPS, TEXT_LENGTH, backtracking, like_steps

_EXPRESSIONS = {"RLike", "RegExpExtract", "RegExpExtractAll", "RegExpReplace", "RegExpInStr", "StringSplit"}
_EXPRESSIONS |= {"RegExpCount", "RegExpSubStr"}
_URLS = {"ParseUrl", "TryParseUrl"}
_LIKES = {"Like", "ILike"}
PATTERNS = frozenset({*_EXPRESSIONS, *_URLS, *_LIKES, "StringToMap"})
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_WAY_OUT = "Use fewer repetitions, such as one [^,]* between commas, or LIKE with fewer %"


def check_patterns(name: str, args: Sequence[Bound]) -> None:
    """Raise QueryTooExpensive if matching the pattern in a text may take too many steps, or if a regular expression is
    not a literal."""
    length = max(args[0].size, 1.0)
    if name in _LIKES:
        if args[1].text is not None:
            _check(like_steps(args[1].text, length), "LIKE", args[1].text)
        return
    for pattern in args[2:] if name in _URLS else args[1:] if name == "StringToMap" else args[1:2]:
        if pattern.text is not None:
            _check(max(length, backtracking(pattern.text).steps(length)), sql_name(name), pattern.text)
        elif not pattern.known or pattern.size:  # it is not null
            raise QueryTooExpensive(
                f"sql may be too expensive: the regular expression of {sql_name(name)} is not a literal, so its cost "
                "is unknown. Write it as a literal or a parameter; for plain text use contains, replace or split_part",
                field="sql",
            )


def check_hidden_patterns(plan_json: str, text: str) -> None:
    """Check every quoted text of a query with LIKE ALL or LIKE ANY, because the plan omits their patterns."""
    if "LikeA" not in plan_json:
        return
    for single, double in _QUOTED.findall(text):
        pattern = single or double
        _check(like_steps(pattern, TEXT_LENGTH), "LIKE", pattern)


def _check(steps: float, name: str, pattern: str) -> None:
    if steps > MOST_STEPS:
        raise too_expensive(
            f"{name} with the pattern {pattern[:60]!r} may take {_shown(steps)} steps for one text",
            f"{shown(MOST_STEPS)} are allowed",
            _WAY_OUT,
        )


def _shown(steps: float) -> str:
    return "endlessly many" if steps > 1e300 else f"about {steps:.0e}"
