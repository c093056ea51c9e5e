"""Lists that a service divides into pages."""

from collections.abc import Callable, Sequence

from service.cli.command import Request, Response

_PAGE = 1000
"""Every list has pages of this size."""


def whole_list(send: Callable[[Request], Response], request: Request, lists: Sequence[str]) -> Response:
    """All pages of a list as one response, or as many as hold the request's `limit` of items. `send` gets each page.

    The response has a `next_cursor` only if there are more than that.
    """
    left = request.get("limit")
    whole: Response = {}
    cursor: Request = {}
    while True:
        page_limit = {} if left is None else {"limit": min(left, _PAGE)}
        response = send({**request, **page_limit, **cursor})
        if not response["success"]:
            return response
        pages = {name: [*whole.get(name, []), *response[name]] for name in lists if name in response}
        whole = {**response, **pages}
        if left is not None:
            left -= sum(len(response[name]) for name in lists[:1])
        if not response.get("next_cursor") or (left is not None and left <= 0):
            return whole
        cursor = {"cursor": response["next_cursor"]}
