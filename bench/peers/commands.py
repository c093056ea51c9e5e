"""A peer's end of the pipe: commands in, results out, one line of JSON each."""

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def serve(commands: dict[str, Callable[..., Any]]) -> None:
    """Run the commands that arrive on standard input, until it ends."""
    # Only responses go to the real standard output: libraries print too.
    responses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            response = {"result": commands[request.pop("do")](**request)}
        except Exception as e:
            traceback.print_exc()
            response = {"error": f"{type(e).__name__}: {e}"[:2000]}
        responses.write(json.dumps(response) + "\n")
        responses.flush()
        # The next command must not pay for what this one left behind.
        gc.collect()


def timed(job: Callable[[], Any]) -> float:
    """How many milliseconds it took."""
    started = time.perf_counter()
    job()
    return (time.perf_counter() - started) * 1000
