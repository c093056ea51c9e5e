"""The page at /docs and the guides beside it, without a service behind them."""

import asyncio
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from handlers import discover
from service.api import docs_page, http
from service.errors import NotFound
from service.settings import ROOT


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return http.declare(discover())


def get(app: FastAPI, path: str) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://firn") as client:
            return await client.get(path)

    return asyncio.run(run())


def test_the_page_is_sent_with_its_policy_and_is_the_same_each_time(app: FastAPI) -> None:
    first, second = get(app, "/docs"), get(app, "/docs")
    assert (first.status_code, first.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert first.headers["content-security-policy"] == docs_page.content_security_policy()
    assert first.text == second.text


def test_a_guide_is_served_as_text(app: FastAPI) -> None:
    response = get(app, "/docs/how-to/upsert.md")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert response.text == (ROOT / "docs/how-to/upsert.md").read_text()


@pytest.mark.parametrize("guide", [("how-to", "none.md"), ("..", "README.md"), ("decisions", "index.md")])
def test_only_guides_are_served(guide: tuple[str, str]) -> None:
    with pytest.raises(NotFound, match="there is no guide"):
        http._guide(*guide)


def test_a_service_without_the_documentation_says_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(docs_page, "ROOT", tmp_path)
    text = docs_page.page(discover())
    assert 'href="/docs/' not in text
    assert "The guides are in the folder <code>docs</code> of the source." in text
