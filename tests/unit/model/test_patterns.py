"""Patterns that Java may take far too long to match are known, and ordinary ones are not among them."""

import time

import pytest

from service.model.patterns.backtracking import MOST_STEPS, TEXT_LENGTH, backtracking, like_steps, problem_of

HOSTILE = [
    "(a+)+b",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+$",
    r"(\w+\s?)+$",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(x+x+)+y",
    "(.*)*x",
    "(a|b|ab)*c",
    "([a-zA-Z]+)*$",
    r"(\d+|\d+\.\d+)*x",
    "^(a?){30}a{30}$",
    "(a{1,10}){1,10}b",
    "(?:(?:a+)+)+$",
    r"(.|\n)*?x(.|\n)*y",
    "(?i)(A|a)*b",
    "(?=(a+)+b)a",
    ".*a.*b.*c.*d.*e.*f.*g",
    "a*a*a*a*a*a*a*b",
    "x" * 5_000,
]
ORDINARY = [
    r"^[A-Z]{2}\d+$",
    r"(\w+)@(\w+)\.com",
    r"\s+",
    r"^\w+([-+.']\w+)*@\w+([-.]\w+)*\.\w+([-.]\w+)*$",
    "^[a-z]+(-[a-z]+)*$",
    r"(\d{1,3}\.){3}\d{1,3}",
    r"^(\w+\.)+\w+$",
    ".*foo.*bar.*",
    r"^(?=.*[A-Z])(?=.*\d).{8,}$",
    "[^,]*,[^,]*,[^,]*",
    "a|b|c",
    "(foo|bar)+",
    r"(GET|POST) (/[\w/]*)\s+HTTP",
    r"https?://[^/\s]+(/[^\s]*)?",
    r"\b(\w+)\s+\1\b",
    "[a-z&&[^b]]+x",
    r"(?i)hello\s*world",
    r"^\s*(\S.*\S)\s*$",
    r"\p{L}+",
    r"\QA.B\E+",
    r"\[(.*?)\]",
    r"^(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2})(:\d{2}(\.\d{1,6})?)?$",
    "(?>a+)+b",
    "(a++)+b",
    "|".join(f"word{i}" for i in range(150)),
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_with_too_many_ways_to_match_is_known(pattern: str) -> None:
    assert backtracking(pattern).steps(TEXT_LENGTH) > MOST_STEPS
    assert repr(pattern[:60]) in (problem_of("rlike", pattern) or "")


@pytest.mark.parametrize("pattern", ORDINARY)
def test_an_ordinary_pattern_is_not_among_them(pattern: str) -> None:
    assert problem_of("rlike", pattern) is None


def test_a_long_text_makes_more_patterns_too_expensive() -> None:
    assert backtracking("a+b").steps(1_000) < MOST_STEPS < backtracking("a+b").steps(1_000_000)
    # Java takes a part of its stack for each time around a choice.
    assert backtracking("(a|b)*c").steps(1_000) < MOST_STEPS < backtracking("(a|b)*c").steps(100_000)
    assert backtracking("[ab]*c").steps(100_000) <= MOST_STEPS


@pytest.mark.parametrize("pattern", ["a%", "%urgent%customer%complaint%refund%", "%a%b%c%d%", "_x_", r"100\%", "%"])
def test_an_ordinary_like_is_not_too_expensive(pattern: str) -> None:
    assert problem_of("like", pattern) is None


def test_a_like_with_many_wildcards_is_too_expensive() -> None:
    assert problem_of("ilike", "%a%a%a%a%a%b")
    assert like_steps("%a%a%a%b", 100_000) > MOST_STEPS


def test_what_cannot_be_read_is_judged_by_its_repetitions() -> None:
    assert problem_of("rlike", "(") is None
    assert problem_of("rlike", "(?<x>a*)*b*(?R)*") is not None


def test_judging_a_pattern_takes_milliseconds() -> None:
    # The largest loop that is looked at, and as many characters as a pattern may have.
    hard = ["(" + "|".join(f"{c}[a-z]" for c in "abcdefghijklmnopqrstuvwxyz") + ")+x", "(a|b)*" * 600, "[a-z]*" * 650]
    started = time.process_time()
    for pattern in hard:
        backtracking(pattern)
    assert time.process_time() - started < 5
