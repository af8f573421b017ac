"""What a program can notice of its TCP sockets: one line for each case, "name: outcome".

The same cases run as they are and under `gtp run`, and whoever runs them compares the lines. So
nothing here knows which of the two it is. Each other module in this directory but `common` holds
the cases of one topic. A case that takes too long has that for its outcome.
"""

import importlib
import pathlib
import signal
import socket
import sys

sys.dont_write_bytecode = True

from common import CASES, SECONDS  # noqa: E402 (its bytecode is not written either)


def outcome(function, words):
    def late(*_):
        raise TimeoutError("too long")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return function(*words)
    except BaseException as failed:  # An outcome like any other.
        return f"{type(failed).__name__}: {failed}"
    finally:
        signal.alarm(0)


def load():
    """Imports every topic, each of which registers its cases."""
    here = pathlib.Path(__file__)
    shared = (here.stem, "common")
    for topic in sorted(file.stem for file in here.parent.glob("*.py")):
        if topic not in shared:
            importlib.import_module(topic)


def main():
    load()
    socket.setdefaulttimeout(None)
    wanted = sys.argv[1:]
    for name, function, words in CASES:
        if not wanted or name in wanted or function.__name__ in wanted:
            print(f"{name}: {outcome(function, words)!r}", flush=True)


if __name__ == "__main__":
    main()
