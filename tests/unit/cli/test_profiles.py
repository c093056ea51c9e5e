"""Profiles: what they say is used unless an option says otherwise."""

import stat
from pathlib import Path
from typing import Any

import pytest

from service.cli import profiles
from service.cli.catalogue import COMMANDS
from service.cli.completion.words import complete
from tests.cli import Called, call, shows
from tests.unit.cli.test_commands import Service, firn

PROD = ["profile", "add", "prod", "--url", "https://ann:secret@firn.example.com", "--tenant", "acme"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.words[0] == "profile"], ids=lambda c: c.name)
def test_the_examples_do_what_they_say(command: Any, environ: dict[str, str]) -> None:
    for example in command.examples:
        for line in example.setup:
            call(line.split()[1:], environ)
        done = call(example.line.split()[1:], environ)
        assert (done.code, done.err) == (0, "")
        assert shows(example.output, done.out)


def test_a_profile_says_the_tenant_and_options_override_it(environ: dict[str, str]) -> None:
    assert call(PROD, environ).code == 0
    for line, tenant in (
        (["-p", "prod", "table", "list"], "acme"),
        (["table", "list", "--profile", "prod"], "acme"),
        (["table", "list", "-pprod", "--tenant", "other"], "other"),
        (["table", "list"], "variable"),
    ):
        service = Service(tables=[])
        assert firn(line, service, FIRN_TENANT="variable", **environ).code == 0
        assert service.asked[0]["tenant_id"] == tenant


def test_a_profile_says_the_address_whatever_the_variable_says(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(PROD, environ)
    asked = []

    def open_connection(options: Any, *_: Any) -> Service:
        asked.append(options.url)
        return Service(tables=[])

    monkeypatch.setattr("service.cli.connection.targets.open_connection", open_connection)
    for more in ([], ["--url", "http://other"]):
        assert call(["-p", "prod", "table", "list", *more], {**environ, "FIRN_URL": "http://variable"}).code == 0
    assert asked == ["https://ann:secret@firn.example.com", "http://other"]


def test_a_login_is_shown_to_nobody(environ: dict[str, str]) -> None:
    call(PROD, environ)
    assert stat.S_IMODE(profiles.path_of(environ).stat().st_mode) == 0o600
    assert "secret" not in call(["profile", "list"], environ).out


def test_a_profile_is_replaced_and_removed(environ: dict[str, str]) -> None:
    call(PROD, environ)
    assert call(["profile", "add", "prod", "--tenant", "b"], environ).out.startswith("replaced prod")
    assert profiles.read(environ) == {"prod": {"tenant": "b"}}
    assert call(["profile", "remove", "prod"], environ) == Called(0, "removed prod\n", "")
    assert profiles.read(environ) == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["-p", "prd", "table", "list"], "there is no profile prd; did you mean prod?"),
        (["profile", "remove", "x"], "there is no profile x; choose from prod"),
        (["profile", "add", "x"], "the profile says nothing; use --url, --tenant or --api-key-stdin"),
        (["profile", "add", "x", "--url", "localhost"], "'localhost' is not the address of a service"),
    ],
)
def test_what_is_wrong_is_said(line: list[str], says: str, environ: dict[str, str]) -> None:
    call(PROD, environ)
    done = call(line, environ)
    assert (done.code, says in done.err) == (2, True)


def test_a_broken_file_is_named(environ: dict[str, str]) -> None:
    path = profiles.path_of(environ)
    path.parent.mkdir()
    for text in ("{", "[]", '{"a": 5}'):
        path.write_text(text)
        done = call(["profile", "list"], environ)
        assert (done.code, str(path) in done.err) == (2, True)


def test_names_of_profiles_are_completed(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    call(PROD, environ)
    monkeypatch.setenv("XDG_CONFIG_HOME", environ["XDG_CONFIG_HOME"])
    assert complete(["table", "list", "-p", ""]) == ["prod"]
    assert complete(["profile", "remove", "p"]) == ["prod"]
