"""The worker process: takes runs on stdin, answers on stdout, writes into a folder."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Any


def main() -> int:
    from upriver.experiments.execute import attempt
    from upriver.experiments.runspec import RunSpec
    from upriver.experiments.store import StorageFailed, Store

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an agent prints must not be taken for an answer

    def answer(reply: dict[str, Any]) -> None:
        answers.write(f"{json.dumps(reply)}\n")

    runs: queue.Queue[str] = queue.Queue()
    Thread(target=listen, args=(runs,), daemon=True).start()
    store = Store(Path(sys.argv[1]))
    try:
        answer({"ready": True})
        while True:
            run = RunSpec.from_json(runs.get())
            try:
                error = attempt(run, store)
            except StorageFailed as failure:
                answer({"storage": str(failure)})
                return 1
            answer({"error": error})
    except BrokenPipeError:
        return 0


def listen(runs: queue.Queue[str]) -> None:
    """Take runs in until the other end closes: finished, or dead, and then nobody waits for us."""
    for line in sys.stdin:
        runs.put(line)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
