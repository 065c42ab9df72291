"""`exec_worker.py AGENT_PID COMMAND...`, in front of every worker: where the agent is killed, the
kernel kills the worker, which would go on holding its GPUs. The setting survives `exec`.
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
