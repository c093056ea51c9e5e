"""Reads regular expressions of Java into trees, as far as it matters for how long matching can take."""

from dataclasses import dataclass, field

# Sets of characters are bits: one for each of ASCII, and one for all others.
OTHER = 1 << 128
EVERY = (1 << 129) - 1
_DIGITS = sum(1 << ord(c) for c in "0123456789")
_LETTERS = sum(1 << ord(c) for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD = _DIGITS | _LETTERS | 1 << ord("_")
_SPACE = sum(1 << ord(c) for c in " \t\n\x0b\f\r")
_LINE_END = 1 << ord("\n") | 1 << ord("\r") | OTHER
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE, "h": 1 << ord(" ") | 1 << ord("\t") | OTHER, "v": _LINE_END}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_BOUNDARIES = "bBAGzZ"
MAX_LENGTH = 4_000
_MAX_DEPTH = 100


class Unread(ValueError):
    """The pattern has something that this parser does not know, or is not valid."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a pattern: a character, parts in sequence, a choice, or a repetition."""

    kind: str
    """chars, sequence, choice, repeat, ahead"""
    parts: tuple["Part", ...] = ()
    chars: int = 0
    least: int = 0
    most: int | None = 0
    is_possessive: bool = False


@dataclass(slots=True)
class _Reader:
    text: str
    place: int = 0
    depth: int = 0
    ignore_case: bool = False
    ahead: int = 0
    """How many lookaheads and lookbehinds are around this place."""
    groups: int = 0
    """How many groups that capture have begun."""
    seen_ahead: set[str] = field(default_factory=set)
    """The numbers and names of the groups that capture inside of a lookahead or lookbehind."""

    def peek(self, count: int = 1) -> str:
        return self.text[self.place : self.place + count]

    def take(self) -> str:
        found = self.peek()
        if not found:
            raise Unread("the pattern ends early")
        self.place += 1
        return found

    def skip(self, text: str) -> bool:
        if self.text.startswith(text, self.place):
            self.place += len(text)
            return True
        return False

    def choice(self) -> Part:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unread("the pattern is nested too deeply")
        options = [self.sequence()]
        while self.skip("|"):
            options.append(self.sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else Part("choice", tuple(options))

    def sequence(self) -> Part:
        parts = []
        while self.peek() and self.peek() not in "|)":
            part = self.atom()
            if part is not None:
                parts.append(self.quantified(part))
        return parts[0] if len(parts) == 1 else Part("sequence", tuple(parts))

    def quantified(self, part: Part) -> Part:
        while True:
            bounds = self.bounds()
            if bounds is None:
                return part
            possessive = self.skip("+")
            self.skip("?")
            part = Part("repeat", (part,), least=bounds[0], most=bounds[1], is_possessive=possessive)

    def bounds(self) -> tuple[int, int | None] | None:
        if self.skip("*"):
            return 0, None
        if self.skip("+"):
            return 1, None
        if self.skip("?"):
            return 0, 1
        if not self.skip("{"):
            return None
        inside, found, _ = self.text[self.place :].partition("}")
        low, comma, high = inside.partition(",")
        if not found or not low.isdecimal() or (high and not high.isdecimal()) or len(inside) > 20:
            raise Unread("a { without numbers")
        self.place += len(inside) + 1
        return int(low), (int(high) if high else None) if comma else int(low)

    def atom(self) -> Part | None:
        char = self.take()
        match char:
            case "(":
                return self.group()
            case "[":
                return Part("chars", chars=self.char_class())
            case ".":
                return Part("chars", chars=EVERY)
            case "^" | "$":
                return None
            case "\\":
                return self.escaped()
            case "*" | "+" | "?":
                raise Unread("nothing to repeat")
        return Part("chars", chars=self.single(char))

    def single(self, char: str) -> int:
        bit = 1 << ord(char) if ord(char) < 128 else OTHER
        if self.ignore_case and char.isalpha() and ord(char) < 128:
            bit |= 1 << ord(char.swapcase())
        return bit

    def group(self) -> Part | None:
        ahead, atomic, names = False, False, [str(self.groups + 1)]
        if self.skip("?"):
            if self.skip(">"):
                atomic = True
            elif any(self.skip(sign) for sign in ("<=", "<!", "=", "!")):
                ahead = True
            elif self.skip("<"):
                names.append("")
                while (char := self.take()) != ">":
                    names[1] += char
            elif not self.flags():
                return None
            names = names if len(names) > 1 else []
        self.groups += bool(names)
        self.ahead += ahead
        if self.ahead:
            self.seen_ahead.update(names)
        inside = self.choice()
        self.ahead -= ahead
        if not self.skip(")"):
            raise Unread("a group is not closed")
        if ahead:
            return Part("ahead", (inside,))
        return Part("repeat", (inside,), least=1, most=1, is_possessive=True) if atomic else inside

    def flags(self) -> bool:
        """Read the flags of a group; whether a group follows, and not only flags."""
        on = True
        while True:
            char = self.take()
            if char == "-":
                on = False
            elif char == "i":
                self.ignore_case = on
            elif char in ":)":
                return char == ":"
            elif char not in "dmsuxU":
                raise Unread("an unknown group")

    def escaped(self) -> Part | None:
        char = self.take()
        if char in _BOUNDARIES:
            return None
        if char == "Q":
            quoted, _, _ = self.text[self.place :].partition("\\E")
            self.place = min(self.place + len(quoted) + 2, len(self.text))
            return Part("sequence", tuple(Part("chars", chars=self.single(c)) for c in quoted))
        if char in "RX":
            return Part("chars", chars=_LINE_END if char == "R" else EVERY)
        if (char.isdecimal() and char != "0") or char == "k":  # a group again
            if char == "k":
                while self.take() != ">":
                    pass
            return Part("repeat", (Part("chars", chars=EVERY),), least=0, most=None)
        return Part("chars", chars=self.escaped_chars(char))

    def escaped_chars(self, char: str) -> int:
        if char.lower() in _CLASSES:
            found = _CLASSES[char.lower()]
            return found if char.islower() else EVERY & ~found
        if char in "pP":
            if self.take() == "{":
                while self.take() != "}":
                    pass
            return EVERY
        if char in "xuc0":
            lengths = {"x": 2, "u": 4, "c": 1, "0": 1}
            if self.skip("{"):
                while self.take() != "}":
                    pass
            else:
                self.place += lengths[char]
            return EVERY
        return self.single(_CONTROL.get(char, char))

    def char_class(self) -> int:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unread("the pattern is nested too deeply")
        negated, found, first = self.skip("^"), 0, True
        while first or self.peek() != "]":
            first = False
            if self.skip("&&"):
                rest = self.char_class_rest()
                found &= rest
                break
            char = self.take()
            if char == "[":
                found |= self.char_class()
                continue
            one = self.escaped_chars(self.take()) if char == "\\" else self.single(char)
            if self.peek() == "-" and self.peek(2) not in ("-]", "-"):
                self.take()
                end = self.take()
                end = self.take() if end == "\\" else end
                found |= self.range(char, end)
            found |= one
        self.take()
        self.depth -= 1
        return EVERY & ~found if negated else found

    def char_class_rest(self) -> int:
        """What follows && in a class, without its end."""
        found = 0
        while self.peek() != "]":
            char = self.take()
            if char == "[":
                found |= self.char_class()
            else:
                found |= self.escaped_chars(self.take()) if char == "\\" else self.single(char)
        return found

    def range(self, start: str, end: str) -> int:
        found = OTHER if ord(end) > 127 else 0
        for code in range(ord(start), min(ord(end), 127) + 1):
            found |= self.single(chr(code))
        return found


def parse(pattern: str) -> Part:
    """The tree of a pattern. Raises Unread if it has something unknown."""
    return read(pattern)[0]


def read(pattern: str) -> tuple[Part, set[str]]:
    """The tree of a pattern, and the numbers and names of the groups that capture inside of lookaheads and
    lookbehinds. Raises Unread if it has something unknown."""
    reader = _Reader(pattern)
    found = reader.choice()
    if reader.place < len(pattern):
        raise Unread("a ) without a group")
    return found, reader.seen_ahead
