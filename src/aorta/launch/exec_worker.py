"""Run as a script in front of every worker: ties the worker's life to the agent's, then becomes the
worker.

`exec_worker.py AGENT_PID COMMAND...`. When an agent is killed outright, its workers would go on
holding their GPUs; the kernel kills them instead. The setting survives `exec`, so the worker itself
runs unchanged and keeps its process id.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    agent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != agent:  # it died before the kernel knew
            sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - becoming the user's command is its purpose
    except OSError as wrong:
        print(f"aorta launch: cannot run {command[0]}: {wrong.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(wrong, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
