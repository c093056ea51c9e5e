"""What is found out about a text in the pass over its bytes, and how it is split into records."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ingest.sources.records import csv_records
from service.ingest.sources.text import TextScan


def scanned(chunks: list[bytes]) -> tuple[int, int, bool, bool]:
    scan = TextScan('"')
    for chunk in chunks:
        scan.feed(chunk)
    facts = scan.facts()
    return facts.lines, facts.blank_lines, facts.has_open_quotes, facts.is_utf8


@given(st.lists(st.lists(st.sampled_from([b"\n", b"\r", b'"', b"a", b"\xc3", b"\xa9"]), max_size=4).map(b"".join)))
def test_the_facts_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    lines = text.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    inside = any(text[:i].count(b'"') % 2 for i in range(len(text)) if text[i : i + 1] == b"\n")
    try:
        text.decode()
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    blank = sum(line in (b"", b"\r") for line in lines)
    assert scanned(chunks) == (len(lines), blank, inside, is_utf8)


def records(text: str) -> list[tuple[int, str, bool]]:
    return [tuple(record) for record in csv_records(text.split("\n"), ",", '"')]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,b\n1,"x\ny"\n2,z', [(1, "a,b", False), (2, '1,"x\ny"', False), (4, "2,z", False)]),
        # A quote that is never closed spoils its own line only.
        ('1,"open\n2,b\n3,c', [(1, '1,"open', True), (2, "2,b", False), (3, "3,c", False)]),
        ('1,"open\n2,"b"x\n3,c', [(1, '1,"open', True), (2, '2,"b"x', False), (3, "3,c", False)]),
        ('5" pipe,1\n6,2', [(1, '5" pipe,1', False), (2, "6,2", False)]),
        ('"a""\n""b",1', [(1, '"a""\n""b",1', False)]),
        ("\n\na\n\n", [(3, "a", False)]),
    ],
)
def test_a_record_may_have_line_breaks_in_quotes(text: str, expected: list[tuple[int, str, bool]]) -> None:
    assert records(text) == expected


@given(st.lists(st.lists(st.text('a,"\n é', max_size=5), min_size=2, max_size=3), min_size=1, max_size=8))
def test_what_python_writes_as_csv_is_split_into_its_rows(rows: list[list[str]]) -> None:
    texts, line, expected = [], 1, []
    for row in rows:
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(row)
        texts.append(out.getvalue())
        expected.append((line, out.getvalue(), False))
        line += out.getvalue().count("\n") + 1
    assert records("\n".join(texts)) == expected
