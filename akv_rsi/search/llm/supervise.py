"""Runs a command until stdin closes, then ends it with all its children.

The parent holds the other end of the pipe, so the command dies with it, even by kill -9.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

GRACE_S = 5.0


def main(command: list[str]) -> int:
    """The command's exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # Ctrl-C and `timeout` signal the whole group: only the closing of stdin ends this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_stdin, args=(child,), daemon=True).start()
    return child.wait()


def _end_with_stdin(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):  # not through sys.stdin: its lock would abort the interpreter's end
        pass
    for end in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, end)
        except ProcessLookupError:
            return
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    # The leader is gone; what it left in its group goes too.
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
