"""How the service of a home is found: by a socket that is its user's alone, and a note beside it."""

import json
import socket
import stat
from pathlib import Path

import pytest

from service.host import presence
from service.settings import Settings, load


def settings(home: Path, **environ: str) -> Settings:
    return load({"FIRN_HOME": str(home), **environ})


def test_who_listens_is_found_until_they_withdraw(tmp_path: Path) -> None:
    with presence.announce(settings(tmp_path), background=True, log="/x.log"):
        found = presence.find(tmp_path)
        assert found is not None
        assert (found.background, found.log) == (True, "/x.log")
        presence.withdraw(tmp_path)
        assert presence.find(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_found_where_nobody_is(tmp_path: Path) -> None:
    assert presence.find(tmp_path) is None
    assert presence.find(tmp_path / "nowhere") is None


def test_what_a_crash_left_is_nobody_and_in_nobodys_way(tmp_path: Path) -> None:
    presence.announce(settings(tmp_path), background=True).close()
    assert (tmp_path / "service.sock").exists()
    assert presence.find(tmp_path) is None
    with presence.announce(settings(tmp_path), background=False):
        found = presence.find(tmp_path)
        assert found is not None
        assert not found.background


def test_both_are_for_their_user_alone(tmp_path: Path) -> None:
    with presence.announce(settings(tmp_path), background=True):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {"service.sock": 0o600, "service.json": 0o600}


def test_a_socket_that_others_could_have_made_is_not_trusted(tmp_path: Path) -> None:
    with presence.announce(settings(tmp_path), background=True):
        (tmp_path / "service.sock").chmod(0o666)
        assert presence.find(tmp_path) is None


def test_a_home_whose_path_is_too_long_for_a_socket_has_it_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 100)
    home.mkdir()
    path = presence.socket_path(home)
    assert path.parent != home
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with presence.announce(settings(home), background=True):
        assert presence.find(home) is not None
        assert presence.find(tmp_path) is None
    presence.withdraw(home)
    assert not path.exists()


def test_a_folder_for_sockets_that_others_have_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.host.presence.tempfile.gettempdir", lambda: str(tmp_path))
    home = tmp_path / ("x" * 100)
    presence.socket_path(home).parent.chmod(0o777)
    with pytest.raises(presence.SettingsError, match="is accessible to other users"):
        presence.socket_path(home)


def test_a_note_that_is_not_one_is_nobody(tmp_path: Path) -> None:
    with presence.announce(settings(tmp_path), background=True):
        for text in ("", "[]", '{"pid": 1}', '{"x": 1}'):
            (tmp_path / "service.json").write_text(text)
            assert presence.find(tmp_path) is None


def test_settings_that_differ_are_named_and_those_about_other_data_are_known(tmp_path: Path) -> None:
    url = "postgresql://u:secret@h/d"
    more = {"FIRN_SPARK__DRIVER_MEMORY": "3g", "FIRN_CATALOG__TYPE": "postgresql", "FIRN_CATALOG__URI": url}
    with presence.announce(settings(tmp_path, **more, FIRN_CATALOG__WAREHOUSE="s3://x"), background=True):
        found = presence.find(tmp_path)
        assert found is not None
        differing = presence.differing(found, settings(tmp_path))
    assert differing == ["catalog.type", "catalog.uri", "catalog.warehouse", "spark.driver_memory"]
    assert [presence.is_about_data(name) for name in differing] == [True, True, True, False]
    assert "secret" not in json.dumps(found.settings)


def test_settings_that_a_caller_cannot_notice_do_not_differ(tmp_path: Path) -> None:
    with presence.announce(settings(tmp_path), background=True):
        found = presence.find(tmp_path)
        assert found is not None
        others = settings(tmp_path, FIRN_PORT="9", FIRN_LOG_LEVEL="error", FIRN_BACKGROUND__IDLE_TIMEOUT_S="5")
        assert presence.differing(found, others) == []


def test_a_socket_cannot_be_made_where_nobody_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("service.host.presence.socket.socket", type("S", (socket.socket,), {"bind": refuse}))
    with pytest.raises(presence.SettingsError, match=r"cannot create a socket at .* \(Permission denied\)"):
        presence.announce(settings(tmp_path), background=True)
