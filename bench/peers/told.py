"""A peer's end of the line: requests in, answers out, one line of JSON each."""

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def obey(commands: dict[str, Callable[..., Any]]) -> None:
    """Do what comes on standard input until it ends."""
    # Answers get the real standard output to themselves: libraries print too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": commands[request.pop("do")](**request)}
        except Exception as e:
            traceback.print_exc()
            answer = {"error": f"{type(e).__name__}: {e}"[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        # What the last request left behind is not on the next one's bill.
        gc.collect()


def timed(job: Callable[[], Any]) -> float:
    """How many milliseconds it took."""
    started = time.perf_counter()
    job()
    return (time.perf_counter() - started) * 1000
