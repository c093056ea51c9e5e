"""HTTP by urllib, which knows about proxies, for bodies that a service may refuse before their end."""

import http.client
import urllib.request
from typing import Any

from service.cli.connection.remote import is_streamed


class _Refusable(http.client.HTTPConnection):
    """A connection whose response is read even if the rest of a streamed body was refused."""

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
        try:
            super().request(method, url, body, headers or {}, **more)
        except (BrokenPipeError, ConnectionResetError):
            if not is_streamed(body):
                raise


class _RefusableTls(http.client.HTTPSConnection, _Refusable):
    pass


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Refusable, request)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_RefusableTls, request)


def opener() -> urllib.request.OpenerDirector:
    """Opens URLs through the proxies that the variables `http_proxy`, `https_proxy` and `no_proxy` say."""
    return urllib.request.build_opener(_HttpHandler, _HttpsHandler)
