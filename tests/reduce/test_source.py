"""`aorta reduce --source`: a program of several files becomes one short script that fails the same
way, alone, in an empty directory.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.aorta_cli import aorta, environ, start_aorta
from support.waiting import patience, wait_until

PROGRAM = {
    "train.py": '''\
"""Train a small net."""
import argparse
import json
from pathlib import Path

from lab.data import make_batches
from lab.models import build
from lab import util


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.json")
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


class Trainer:
    def __init__(self, model, cfg):
        self.model = model
        self.history = []

    def step(self, batch):
        loss = sum(self.model(batch))
        self.history.append(float(loss))
        return loss

    def run(self, batches):
        for number, batch in enumerate(batches):
            util.log(f"step {number}")
            loss = self.step(batch)
            util.log(f"loss {loss}")


def main():
    args = parse()
    cfg = json.loads(Path(args.config).read_text())
    trainer = Trainer(build(cfg["model"], cfg), cfg)
    trainer.run(make_batches(cfg, args.steps))


if __name__ == "__main__":
    main()
''',
    "config.json": '{"model": "mlp", "width": 16, "hidden": 8}',
    "lab/__init__.py": "",
    "lab/util.py": "import sys\n\n\ndef log(text):\n    print(text, file=sys.stderr)\n",
    "lab/data.py": """\
from .util import log


class Batches:
    def __init__(self, width, count):
        self.width, self.count = width, count

    def __iter__(self):
        for number in range(self.count):
            log(f"making {number}")
            yield [number] * self.width


def make_batches(cfg, steps):
    return Batches(cfg["width"], steps)
""",
    "lab/models.py": """\
from dataclasses import dataclass, field

REGISTRY = {}


def register(name):
    def note(cls):
        REGISTRY[name] = cls
        return cls

    return note


class Base:
    def __call__(self, x):
        return self.forward(x)


@dataclass
class Scale:
    by: int = 2
    seen: list = field(default_factory=list)

    def __call__(self, x):
        return [value * self.by for value in x]


@register("mlp")
class MLP(Base):
    def __init__(self, cfg):
        self.first = Scale(cfg["hidden"])
        self.table = {number: number for number in range(10)}

    def forward(self, x):
        return [self.table[value] for value in self.first(x)]


@register("linear")
class Linear(Base):
    def forward(self, x):
        return x


def build(name, cfg):
    return REGISTRY[name](cfg)
""",
}


def lay(place: Path, program: dict[str, str]) -> Path:
    for name, text in program.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


def reduced(place: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The result, and the script that ships."""
    done = aorta("reduce", "--source", "--json", "-q", "--", sys.executable, *words, cwd=place)
    assert done.exit_code == code, done.stderr
    result = json.loads(done.stdout)
    return result, (place / result["run_dir"] / "shrunken" / "repro.py").read_text()


def alone(script: str, place: Path) -> str:
    """What the script says, by itself, in an empty directory."""
    place.mkdir()
    (place / "repro.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "repro.py"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env=environ({}),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_a_package_with_a_registry_and_a_config_becomes_one_short_script(tmp_path: Path) -> None:
    place = lay(tmp_path / "project", PROGRAM)
    result, script = reduced(place, "train.py", "--config", "config.json")
    (row,) = result["axes"]
    assert result["status"] == "reduced"
    assert (row["kind"], row["initial_files"], row["final_files"]) == ("source", 6, 1)
    assert row["final_lines"] <= 30 < row["initial_lines"]
    assert result["trials"] <= 400
    assert result["shipped_copy"]["self_contained"] is True
    said = alone(script, tmp_path / "empty")
    assert said.splitlines()[-1] == "KeyError: 16"
    assert ".table[value]" in script
    assert script.startswith("# Made by aorta reduce from train.py")
    run = place / result["run_dir"] / "shrunken" / "run_repro.sh"
    done = subprocess.run(["bash", run], capture_output=True, text=True, check=False, cwd="/")
    assert done.stderr.splitlines()[-1] == "KeyError: 16"


def test_stopped_in_the_middle_it_leaves_the_best_so_far_and_goes_on(tmp_path: Path) -> None:
    place = lay(tmp_path / "project", PROGRAM)
    words = ("reduce", "--source", "-q", "--", sys.executable, "train.py")
    process = start_aorta(*words, cwd=place)
    wait_until(lambda: bool(list(place.glob("reduce/2*/shrunken/repro.py"))), "a first script")
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=patience())
    (run_dir,) = (place / "reduce").glob("2*")
    assert json.loads((run_dir / "result.json").read_text())["status"] == "partial"
    first = (run_dir / "shrunken" / "repro.py").read_text()
    done = aorta("reduce", "--resume", run_dir, "--json", "-q", cwd=place)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["resumed_trials"] > 3
    script = (run_dir / "shrunken" / "repro.py").read_text()
    assert len(script.splitlines()) < len(first.splitlines())
    assert alone(script, tmp_path / "empty").splitlines()[-1] == "KeyError: 16"
