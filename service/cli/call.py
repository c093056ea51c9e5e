"""One call of a command: what it was given, and what comes of it."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from service.cli.cells import clean
from service.cli.command import FAILED, INTERRUPTED, UNCONFIRMED, WELL, Answer, Args, Command, Request
from service.cli.page import Page, page_for
from service.cli.progress import Progress
from service.cli.remote import BRISK, Door
from service.cli.streams import is_utf_8
from service.cli.work import Left, Watch, have_done

Say = Callable[[str], None]


@dataclass(frozen=True)
class Call:
    """A command and its arguments, and everything outside that it touches."""

    command: Command
    args: Args
    environ: Mapping[str, str]
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    given: Door | None = None
    """A way to a service that is there already."""

    @property
    def page(self) -> Page:
        return page_for(self.stdout, self.environ)

    def say(self, text: str) -> None:
        """A line that is not the command's result."""
        print(f"firn: {clean(text)}", file=self.stderr, flush=True)

    @contextmanager
    def door(self, spark: bool | None = None, pauses_s: tuple[float, ...] | None = None) -> Iterator[Door]:
        """A way to the service."""
        if self.given is not None:
            yield self.given
            return
        from service.cli.doors import Wanted, open_door

        url = self.args.url or self.environ.get("FIRN_URL") or None
        needs = self.command.spark if spark is None else spark
        pauses = BRISK if pauses_s is None else pauses_s
        opened = open_door(Wanted(url, needs, not self.args.no_background, pauses), self.environ, self.say)
        try:
            yield opened
        finally:
            opened.close()

    def may(self, question: str | None) -> bool:
        """Whether it may be done: nothing is lost by it, or `--force` was given, or somebody said yes."""
        if question is None or self.args.force:
            return True
        if not self.stdin.isatty():
            self.say(f"not done: {question} Nobody is there to ask; give --force to do it")
            return False
        self.stderr.write(f"{question} Type yes to do it: ")
        self.stderr.flush()
        said = ""
        try:
            said = self.stdin.readline()
        finally:
            if not said.endswith("\n"):  # Ctrl-C, or Ctrl-D: what comes next stands on a line of its own
                self.stderr.write("\n")
        if said.strip().lower() in ("yes", "y"):
            return True
        self.say("not done")
        return False

    def tell(self, answer: Answer) -> int:
        """Print an answer; the exit code."""
        if self.args.json:
            text = json.dumps(answer, ensure_ascii=not is_utf_8(self.stdout), separators=(",", ":"))
            print(text, file=self.stdout, flush=True)
            return WELL if answer["success"] else FAILED
        if not answer["success"]:
            return self.refused(answer)
        page = self.page
        self.command.show(answer, self.args, page)
        page.finish()
        for warning in answer.get("warnings") or ():
            self.say(warning)
        return WELL

    def refused(self, answer: Answer) -> int:
        error = answer["error"]
        self.say(f"{error['code']}: {error['message']}")
        return FAILED

    @contextmanager
    def watching(self, what: str) -> Iterator[Watch]:
        """Show how far a job is, where somebody looks."""
        width = page_for(self.stderr, self.environ).width
        progress = Progress(self.stderr, what, None if self.args.json else width)
        try:
            yield progress
        finally:
            progress.end()


def perform(call: Call) -> int:
    """Make a command's one request and show its answer."""
    make = call.command.request
    assert make is not None, f"{call.command.name} makes no request"
    request = make(call.args)
    question = call.command.question(request) if call.command.question else None
    if not call.may(question):
        return UNCONFIRMED
    with call.door() as door:
        answer = _asked(call, door, request)
    return INTERRUPTED if answer is None else call.tell(answer)


def _asked(call: Call, door: Door, request: Request) -> Answer | None:
    """The answer; None where somebody did not want to wait for it."""
    if not call.command.job or request.get("dry_run") or request.get("estimate"):
        return door.ask(request)
    what = f"{call.command.words[-1]} {request['namespace']}.{request['table']}"
    with call.watching(what) as watch:
        try:
            return have_done(door, request, watch)
        except Left as e:
            call.say(f"job {e.job_id} goes on where a service runs; `firn job cancel {e.job_id}` calls it off")
            return None
