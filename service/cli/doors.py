"""Which way a request goes: to a URL, to the service of this home, or into the application in this process."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.cli.command import Answer, Request
from service.cli.remote import BRISK, Door, Remote, Unreachable, key_for

if TYPE_CHECKING:
    from service.presence import Presence
    from service.settings import Settings

_HOME_WAIT_S = 120
_TURNS = 3
_PAUSE_S = 0.2
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What a command wants of a service."""

    url: str | None
    spark: bool
    background: bool = True
    """Whether a service may be started in the background."""
    pauses_s: tuple[float, ...] = BRISK


def open_door(wanted: Wanted, environ: Mapping[str, str], say: Say) -> Door:
    """The door for a command; Unreachable, or a SettingsError, where there is none."""
    if wanted.url:
        from service.cli.address import address_of

        address = address_of(wanted.url)
        return Remote(address.url, pauses_s=wanted.pauses_s, login=address.login)
    from service.settings import load

    settings = load(environ)
    return AtHome(lambda: _at_home(settings, wanted, environ, say))


class AtHome:
    """The service of a home, whoever that is: when one ends with a request before it, another one gets the request."""

    def __init__(self, find: Callable[[], Door]) -> None:
        self._find = find
        self._door = find()

    def ask(self, request: Request, key: str | None = None, text: bytes | None = None) -> Answer:
        key = key or key_for(request)  # the same, whoever gets it
        return self._do(lambda door: door.ask(request, key, text))

    def job(self, job_id: str) -> Answer:
        return self._do(lambda door: door.job(job_id))

    def cancel(self, job_id: str) -> Answer:
        return self._do(lambda door: door.cancel(job_id))

    def close(self) -> None:
        self._door.close()

    def _do(self, act: Callable[[Door], Answer]) -> Answer:
        for turn in range(_TURNS):
            last = turn == _TURNS - 1
            try:
                answer = act(self._door)
            except Unreachable:
                if last:
                    raise
                time.sleep(_PAUSE_S)  # one that was killed is gone in a moment
            else:
                if last or answer["success"] or answer["error"].get("code") != "SHUTTING_DOWN":
                    return answer
            self._door.close()
            self._door = self._find()
        raise AssertionError("unreachable")


def _at_home(settings: "Settings", wanted: Wanted, environ: Mapping[str, str], say: Say) -> Door:
    from service import presence
    from service.cli import background
    from service.settings import HomeInUse, SettingsError

    deadline, told, started = time.monotonic() + _HOME_WAIT_S, False, 0
    while True:
        found = presence.find(settings.home)
        if found is not None:
            _check_same(found, settings, say)
            return background.door(settings.home, wanted.pauses_s)
        try:
            if wanted.spark and wanted.background:
                if started == _TURNS:
                    raise SettingsError(f"a service ends as soon as it has started; see {settings.home}/service.log")
                background.start(settings, environ, say)
                started += 1
                continue
            return _here(settings, wanted, say)
        except HomeInUse as e:
            # Its owner is just starting, ending, or a command like this one.
            if time.monotonic() > deadline:
                raise
            if not told:
                say(f"waiting: {str(e).partition(';')[0]}")
                told = True
            time.sleep(_PAUSE_S)


def _here(settings: "Settings", wanted: Wanted, say: Say) -> Door:
    import logging

    from service.cli.in_process import InProcess

    # Nobody reads along; what goes wrong is in the answer.
    logging.basicConfig(level=logging.CRITICAL, force=True)
    return InProcess.open(settings, say, spark=wanted.spark)


def _check_same(found: "Presence", settings: "Settings", say: Say) -> None:
    """A service of the same home with other data must not be asked; one that is only set otherwise may."""
    from service import presence
    from service.settings import SettingsError

    differing = presence.differing(found, settings)
    if not differing:
        return
    told = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
    way_out = "`firn stop` ends it" if found.background else f"process {found.pid} is it"
    if any(map(presence.is_about_data, differing)):
        raise SettingsError(
            f"the service of FIRN_HOME {settings.home} was started with other settings ({told}), so it has other data; "
            f"{way_out}, or set these as it has them"
        )
    say(f"the service of this home was started with other settings ({told}), which hold; {way_out}")
