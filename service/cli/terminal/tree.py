"""Draw a graph without cycles as trees. What has several parents is drawn below the first, and named below others."""

from collections.abc import Callable, Iterable, Sequence


def draw(
    roots: Iterable[str],
    children: Callable[[str], Sequence[str]],
    label: Callable[[str], str],
    *,
    ascii_only: bool = False,
) -> list[str]:
    """The lines of the trees."""
    drawn: set[str] = set()
    branch, last, down = ("+- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")

    def lines(node: str, before: str) -> Iterable[str]:
        again = node in drawn
        drawn.add(node)
        below = children(node)
        yield label(node) + (" (see above)" if again and below else "")
        for place, child in enumerate([] if again else below):
            is_last = place == len(below) - 1
            head, indent = (last, "   ") if is_last else (branch, down)
            for number, line in enumerate(lines(child, before)):
                yield (head if number == 0 else indent) + line

    return [line for root in roots for line in lines(root, "")]
