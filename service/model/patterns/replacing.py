"""How large a text can become when the matches of a regular expression in it are replaced."""

import re
from dataclasses import dataclass

from service.model.patterns.parser import MAX_LENGTH, Part, Unread, read

_REFERENCE = re.compile(r"\$(?:(\d+)|\{(\w*)\}?)")
# At least this much of a reference is not part of the result.
_REFERENCED = re.compile(r"\$(?:\d|\{\w*\})")
_AHEAD = re.compile(r"\(\?<?[=!]")
# Then spaces and comments in the pattern mean nothing, and the parser reads them as characters.
_COMMENTS = re.compile(r"\(\?[a-zA-Z]*x")


@dataclass(frozen=True, slots=True)
class Replacement:
    """At most `times` as long as the text, and `plus` bytes. If it is `overlapping`, each match can be replaced by
    nearly the whole text, `times` times."""

    times: float
    plus: float
    is_overlapping: bool = False

    def size(self, text: float) -> float:
        """The most bytes of what becomes of a text of this size."""
        return text * (self.times * (text + 1) if self.is_overlapping else self.times) + self.plus


def replacement(pattern: str, new: str) -> Replacement:
    """How large a text can become if each match of a pattern is replaced by this, in which `$1` is a group.

    The groups of all matches together are parts of the text, each in its own place. Only those inside of a lookahead or
    a lookbehind reach beyond their match: `(?=(.*))` finds the rest of the text at each of its places.
    """
    named = [number or name for number, name in _REFERENCE.findall(new)]
    plain = new if "\\" in new else _REFERENCED.sub("", new)
    written = float(len(plain.encode(errors="replace")))
    try:
        if len(pattern) > MAX_LENGTH or _COMMENTS.search(pattern):
            raise Unread("it is too long, or may have comments")
        tree, ahead = read(pattern)
        least = _least(tree)
        # Java reads $12 as the group 1 and the digit 2 if there are fewer groups.
        overlaps = any(one.startswith(group) for one in named for group in ahead)
    except Unread:
        least, overlaps = 0, bool(named) and bool(_AHEAD.search(pattern))
    if overlaps:
        return Replacement(1.0 + len(named) + written, written, True)
    if least == 0:
        return Replacement(1.0 + len(named) + written, written)
    return Replacement(max(1.0, len(named) + written / least), 0.0)


def _least(part: Part) -> int:
    """The least number of characters that a part of a pattern matches."""
    match part.kind:
        case "chars":
            return 1
        case "ahead":
            return 0
        case "choice":
            return min(map(_least, part.parts))
        case "repeat":
            return part.least * _least(part.parts[0])
    return sum(map(_least, part.parts))
