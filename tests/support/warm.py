"""A virtual environment whose one library takes its time to import, and trials that may start warm
in it.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aorta.core.trial import Start, StreamEnd, TrialEnd, TrialSpec, Watch
from aorta.executors import Executor
from aorta.executors.local import LocalExecutor
from aorta.executors.process_tree import descendants
from support.executor_contract import Bench

IMPORT_SECONDS = 0.5
SLOW = f"import time\ntime.sleep({IMPORT_SECONDS})\nimport colorsys\nloaded_at = time.time()\n"


def slow_environment(folder: Path, **modules: str) -> Path:
    """The Python of a new virtual environment that has `slow` and these modules in its
    site-packages.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    for name, text in {"slow": SLOW, **modules}.items():
        (site / f"{name}.py").write_text(text)
    return folder / "bin" / "python"


def hosts_of(executor: LocalExecutor) -> set[int]:
    """The children of its first supervisor: between two trials these are its warm hosts."""
    supervisor = executor._slots[0].process.pid
    return {pid for pid in descendants(supervisor) if _parent_of(pid) == supervisor}


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class WarmBench(Bench):
    """Every trial may start warm; the first of a command is the one whose imports are seen."""

    def __init__(self, executor: Executor, scratch: Path) -> None:
        super().__init__(executor, scratch)
        self.kind = Start.WARM

    def start(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        watch: Watch | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> TrialSpec:
        self._count += 1
        name = f"t{self._count}"
        trial = TrialSpec(
            argv=argv,
            trial_dir=self.scratch / name,
            cwd=self.scratch,
            id=name,
            env=env or {},
            watch=watch or Watch(),
            timeout=timeout,
            start=self.kind,
            varied=frozenset({"SEED"}),
        )
        self.executor.start(trial)
        return trial

    def cold(self, *argv: str, **how: object) -> TrialEnd:
        before, self.kind = self.kind, Start.COLD
        try:
            end = self.run(*argv, **how)  # type: ignore[arg-type]
        finally:
            self.kind = before
        assert not end.saved
        return end

    def warm(self, *argv: str, **how: object) -> TrialEnd:
        """A trial that did start warm: of its program's imports one before it was seen, and it is
        not the first with these variables.
        """
        for _ in range(3):
            end = self.run(*argv, **how)  # type: ignore[arg-type]
            if end.saved:
                return end
        raise AssertionError(said(end))


_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def said(end: TrialEnd) -> str:
    """What it wrote, without the addresses of objects: those are another draw in every cold
    start.
    """
    return _ADDRESS.sub("0x", end.stdout.path.read_text() + end.stderr.path.read_text())


def facts(end: TrialEnd) -> TrialEnd:
    """What must be the same for a cold and a warm trial: everything but where and when."""
    stdout, stderr = (
        StreamEnd(Path(name), tail=_ADDRESS.sub("0x", stream.tail))
        for name, stream in (("stdout", end.stdout), ("stderr", end.stderr))
    )
    same = replace(end, stdout=stdout, stderr=stderr)
    return replace(same, trial_id="", started_at=0.0, duration=0.0, saved=0.0, imports=None)
