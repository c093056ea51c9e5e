"""How many steps Java may take to match a regular expression, which it does by trying all ways to match.

The ways are those through an automaton with one state for each character of the pattern. If a loop can read the same
text in two ways, the steps double with each of its characters. If one loop can continue what another has begun, there
are as many ways as there are places to change from one to the other.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

from service.model.patterns.parser import EVERY, MAX_LENGTH, Part, Unread, parse

MOST_STEPS = 1e10
# What is assumed of a text in a table.
TEXT_LENGTH = 256.0
_MAX_LOOP = 60
_MAX_STATES = 4_000
_MAX_EDGES = 20_000
_MOST_DEGREE = 20
# A repetition with more is treated as one without an end.
_FEW = 4
# A loop over more than one character takes a part of the stack for each time around.
_STACK = 2_000.0


@dataclass(frozen=True, slots=True)
class Backtracking:
    """How the steps of a pattern grow with the length of a text."""

    degree: int
    """A power of the length."""
    is_exponential: bool = False
    is_recursive: bool = False
    """Whether it takes stack for each character."""

    def steps(self, length: float) -> float:
        """The most steps for a text of this length."""
        length = max(length, 1.0)
        if self.is_recursive and length > _STACK:
            return math.inf
        if self.is_exponential:
            return length * math.pow(2.0, min(length, 1000.0))
        return math.exp(min(self.degree * math.log(length) - math.lgamma(self.degree + 1), 700.0))


@dataclass(slots=True)
class _Automaton:
    chars: list[int] = field(default_factory=list)
    follow: list[set[int]] = field(default_factory=list)
    doubled: set[tuple[int, int]] = field(default_factory=set)
    ahead: list[Part] = field(default_factory=list)
    is_recursive: bool = False
    is_atomic: bool = False
    """Whether what is added now is never tried again in another way."""
    edges: int = 0

    def add(self, part: Part) -> tuple[bool, set[int], set[int]]:
        """Add the states of a part: whether it can be empty, and its first and last states."""
        match part.kind:
            case "chars":
                if len(self.chars) >= _MAX_STATES:
                    raise Unread("the pattern has too many characters")
                self.chars.append(part.chars)
                self.follow.append(set())
                place = len(self.chars) - 1
                return False, {place}, {place}
            case "ahead":
                self.ahead.append(part.parts[0])
                return True, set(), set()
            case "choice":
                found = [self.add(option) for option in part.parts]
                return (
                    any(empty for empty, _, _ in found),
                    set().union(*(first for _, first, _ in found)),
                    set().union(*(last for _, _, last in found)),
                )
            case "repeat":
                return self.repeated(part)
        return self.in_sequence(part.parts)

    def in_sequence(self, parts: tuple[Part, ...]) -> tuple[bool, set[int], set[int]]:
        empty, first, last = True, set[int](), set[int]()
        for part in parts:
            one_empty, one_first, one_last = self.add(part)
            self.connect(last, one_first)
            first = first | one_first if empty else first
            last = last | one_last if one_empty else one_last
            empty = empty and one_empty
        return empty, first, last

    def repeated(self, part: Part) -> tuple[bool, set[int], set[int]]:
        inside, most = part.parts[0], part.most
        varies = part.least != most or not _is_fixed(inside)
        is_loop = (most is None or most > _FEW) and varies and not part.is_possessive and not self.is_atomic
        copies = 1 if is_loop or part.is_possessive else max(1, min(most or 1, _FEW))
        optional = [Part("repeat", (inside,), least=0, most=1)] if part.least < (most or 0) and copies > 1 else []
        if copies > 1:
            needed = min(part.least, copies)
            empty, first, last = self.in_sequence((inside,) * needed + tuple(optional * (copies - needed)))
        else:
            before, self.is_atomic = self.is_atomic, self.is_atomic or part.is_possessive
            empty, first, last = self.add(inside)
            self.is_atomic = before
        if is_loop:
            self.is_recursive |= most is None and inside.kind != "chars"
            self.connect(last, first)
            if empty and most is not None:  # each time around may read nothing
                self.doubled |= {(state, state) for state in last & first}
        return empty or part.least == 0, first, last

    def connect(self, last: set[int], first: set[int]) -> None:
        self.edges += len(last) * len(first)
        if self.edges > _MAX_EDGES:
            raise Unread("the pattern has too many ways from one character to the next")
        for one in last:
            for other in first:
                if other in self.follow[one]:
                    self.doubled.add((one, other))
                self.follow[one].add(other)


def _is_fixed(part: Part) -> bool:
    """Whether a part always matches the same number of characters, as far as that is easy to see."""
    if part.kind == "repeat" and part.least != part.most:
        return False
    return part.kind != "choice" and all(map(_is_fixed, part.parts))


@lru_cache(maxsize=1024)
def backtracking(pattern: str) -> Backtracking:
    """How long Java may take to find a pattern in a text."""
    if len(pattern) > MAX_LENGTH:
        return Backtracking(1, is_exponential=True)
    try:
        return _judged(parse(pattern), is_anchored=pattern.startswith(("^", "\\A")))
    except Unread:
        # What is not valid fails in Spark, and has its own error.
        loops = sum(pattern.count(sign) for sign in "*+{")
        return Backtracking(loops + 1, is_exponential=loops > 2 and ")" in pattern)


def problem_of(operator: str, pattern: str) -> str | None:
    """Why a pattern of RLIKE, LIKE or ILIKE must not be matched with texts in tables; None if it may."""
    if operator in ("like", "ilike"):
        steps, way_out = like_steps(pattern, TEXT_LENGTH), "use fewer %"
    else:
        steps = backtracking(pattern).steps(TEXT_LENGTH)
        way_out = "do not repeat what is repeated inside, as in (a+)+, and repeat less"
    if steps <= MOST_STEPS:
        return None
    return f"the pattern {pattern[:60]!r} may take far too long, as it can match a text in many ways; {way_out}"


def like_steps(pattern: str, length: float, escape: str = "\\") -> float:
    """The most steps of LIKE for a text of this length: its `%` can each end at every place where the next part is."""
    parts = pattern.replace(escape * 2, "").replace(f"{escape}%", "").split("%")
    between = [part for part in parts[1:] if part]
    if not between:
        return length
    places = max(length / min(len(part) for part in between), float(len(between)))
    ways = 1.0
    for n in range(len(between)):
        ways *= max(places - n, 1.0) / (n + 1)
    return length + ways


def _judged(part: Part, is_anchored: bool) -> Backtracking:
    automaton = _Automaton()
    automaton.add(part)
    loops = _loops(automaton)
    found = Backtracking(
        max(1, _degree(automaton, loops) + (not is_anchored)),
        any(_is_ambiguous(automaton, loop) for loop in loops),
        automaton.is_recursive,
    )
    for ahead in automaton.ahead:
        other = _judged(ahead, is_anchored)
        found = Backtracking(
            max(found.degree, other.degree),
            found.is_exponential or other.is_exponential,
            found.is_recursive or other.is_recursive,
        )
    return found


def _loops(automaton: _Automaton) -> list[set[int]]:
    """The sets of states of which each can follow each other."""
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(automaton.chars)):
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(automaton.follow[start]))]
        while stack:
            state, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                order.append(state)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(automaton.follow[following])))
    before: list[set[int]] = [set() for _ in automaton.chars]
    for state, following_states in enumerate(automaton.follow):
        for following in following_states:
            before[following].add(state)
    found, done = [], set[int]()
    for start in reversed(order):
        if start in done:
            continue
        loop, waiting = {start}, [start]
        done.add(start)
        while waiting:
            for state in before[waiting.pop()] - done:
                done.add(state)
                loop.add(state)
                waiting.append(state)
        if len(loop) > 1 or start in automaton.follow[start]:
            found.append(loop)
    return found


def _is_ambiguous(automaton: _Automaton, loop: set[int]) -> bool:
    """Whether a loop can read the same text in two ways and be where it was."""
    if any(one in loop and other in loop for one, other in automaton.doubled):
        return True
    if len(loop) == 1:
        return False
    if len(loop) > _MAX_LOOP:
        return True
    start = {(state, state) for state in loop}
    forward = _reached(automaton, loop, start)
    apart = {pair for pair in forward if pair[0] != pair[1]}
    # Two ways that have parted are harmless unless they can meet again.
    return bool(apart) and any(one == other for one, other in _reached(automaton, loop, apart))


def _reached(automaton: _Automaton, loop: set[int], start: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The pairs of states that two ways which read the same text can be in after the first of these."""
    found: set[tuple[int, int]] = set()
    waiting = list(start)
    while waiting:
        one, other = waiting.pop()
        for a in automaton.follow[one] & loop:
            for b in automaton.follow[other] & loop:
                if automaton.chars[a] & automaton.chars[b] and (a, b) not in found:
                    found.add((a, b))
                    waiting.append((a, b))
    return found


def _degree(automaton: _Automaton, loops: list[set[int]]) -> int:
    """How many loops in a row can each continue what the one before has begun."""
    chars = [_union(automaton, loop) for loop in loops]
    longest = [1] * len(loops)
    # The loops come in the order of the pattern.
    for later in range(len(loops)):
        for earlier in range(later):
            shared = chars[earlier] & chars[later]
            if (
                shared
                and longest[earlier] >= longest[later]
                and _leads(automaton, loops[earlier], loops[later], shared)
            ):
                longest[later] = longest[earlier] + 1
                if longest[later] > _MOST_DEGREE:
                    return longest[later]
    return max(longest, default=0)


def _union(automaton: _Automaton, loop: set[int]) -> int:
    found = 0
    for state in loop:
        found |= automaton.chars[state]
    return found & EVERY


def _leads(automaton: _Automaton, start: set[int], end: set[int], shared: int) -> bool:
    """Whether characters that both loops can read lead from one to the other."""
    seen, waiting = set(start), list(start)
    while waiting:
        for state in automaton.follow[waiting.pop()] - seen:
            if state in end:
                return True
            if automaton.chars[state] & shared:
                seen.add(state)
                waiting.append(state)
    return False
