"""Which variables may differ between the trials of one warm host: none that a library can have read
while it was imported.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.executors.local import LocalExecutor
from aorta.executors.warm_hosts import HOOK
from support.warm import WarmBench, hosts_of, said, slow_environment

BARS = """
import os, slow

def envwrap(name, app=""):
    env_overrides = {}
    for prefix in ((name, f"{name}_{app}") if app else (name,)):
        prefix = prefix.upper() + "_"
        i = len(prefix)
        env_overrides.update(
            (k[i:].lower(), v) for k, v in os.environ.items() if k.startswith(prefix))
    return env_overrides

defaults = envwrap("tqdm")
"""
NOSY = "import os, slow\ndefaults = sorted(k for k in os.environ if 'OF_MINE' in k)\n"
COPIES = (
    "import copy, os, slow\nkept = copy.deepcopy(os.environ)\ndefaults = "
    "kept.get('STEPS_OF_MINE'), type(kept)\n"
)


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    local = LocalExecutor(1, grace=0.5, warm=True)
    yield local
    local.close()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("variables") / "venv"
    return str(slow_environment(folder, bars=BARS, nosy=NOSY, copies=COPIES))


def _command(python: str, library: str) -> tuple[str, ...]:
    code = (
        f"import {library}, os; print({library}.defaults, os.environ.get('STEPS_OF_MINE'), "
        "type(os.environ))"
    )
    return python, "-c", code


def test_a_library_that_looks_for_a_prefix_leaves_one_host_to_all_other_variables(
    executor: LocalExecutor, tmp_path: Path, python: str
) -> None:
    bench, command = WarmBench(executor, tmp_path), _command(python, "bars")

    def hosts(**env: str) -> set[int]:
        """All there are after a trial with these variables, which saw what a cold one sees."""
        warm, cold = bench.warm(*command, env=env), bench.cold(*command, env=env)
        assert said(warm) == said(cold)
        return hosts_of(executor)

    first = hosts(STEPS_OF_MINE="5")
    assert len(first) == 1
    assert hosts(STEPS_OF_MINE="7", ANOTHER_OF_MINE="1") == first
    assert hosts() == first
    second = hosts(STEPS_OF_MINE="7", TQDM_MININTERVAL="3")
    assert len(second - first) == 1
    assert hosts(STEPS_OF_MINE="8", TQDM_MININTERVAL="3") == second
    assert len(hosts(TQDM_MININTERVAL="4") - second) == 1


@pytest.mark.parametrize("library", ["nosy", "copies"])
def test_a_library_that_sees_every_variable_gets_a_host_for_each_environment(
    executor: LocalExecutor, tmp_path: Path, python: str, library: str
) -> None:
    bench, command = WarmBench(executor, tmp_path), _command(python, library)
    for env in ({"STEPS_OF_MINE": "5"}, {"STEPS_OF_MINE": "7", "MORE_OF_MINE": ""}, {}):
        assert said(bench.warm(*command, env=env)) == said(bench.cold(*command, env=env))


# A process that imports a program in several environments, and says of each what the program kept,
# and which of the names that were asked about may not differ from it.
IMPORTER = """
import importlib, json, os, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import aorta_warm_reads, aorta_warm_variables
Recording = aorta_warm_reads.Recording
before = dict(os.environ)
for line in sys.stdin:
    order, answers = json.loads(line), []
    for at, (env, names) in enumerate(order["ways"]):
        os.environ.clear()
        os.environ.update(before)
        os.environ.update(env)
        Recording.asked.clear()
        Recording.prefixes.clear()
        modules = set(sys.modules)
        Recording.begin()
        try:
            __import__(order["module"])
            kept = vars(sys.modules[order["module"]])
            kept = repr([(n, v) for n, v in kept.items() if type(v) in (str, int, bool, tuple, list, dict)
                and not n.startswith("__")])
        except Exception as wrong:
            kept = repr(wrong)
        finally:
            Recording.end()
        new = set(sys.modules) - modules
        for name in new & {order["module"]}:
            del sys.modules[name]
        refused = [n for n in names if aorta_warm_variables.Variables([], []).refuse({n})]
        answers.append((kept, refused))
    print(json.dumps(answers), flush=True)
"""

HOST = {"MINE": "1", "P_A": "x", "OTHER": "P_"}
ELSEWHERE: list[tuple[str, dict[str, str]]] = [
    ("MINE", {"MINE": "2", "P_A": "x", "OTHER": "P_"}),
    ("MINE", {"P_A": "x", "OTHER": "P_"}),
    ("A_NEW", {"A_NEW": "1", **HOST}),
    ("Z_NEW", {**HOST, "Z_NEW": "1"}),
    ("P_A", {**HOST, "P_A": "y"}),
    ("P_A", {"MINE": "1", "OTHER": "P_"}),
    ("P_B", {**HOST, "P_B": ""}),
    ("Q_B", {**HOST, "Q_B": "1"}),
    ("OTHER", {**HOST, "OTHER": "Q_"}),
]


class Importer:
    """Programs are written to files: what a loop does is read there."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self.count = folder, itertools.count()
        self.process = subprocess.Popen(
            [python, "-B", "-c", IMPORTER, HOOK, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(
        self, program: str, ways: list[tuple[dict[str, str], list[str]]]
    ) -> list[tuple[str, list[str]]]:
        assert self.process.stdin
        assert self.process.stdout
        module = f"program_{next(self.count)}"
        (self.folder / f"{module}.py").write_text(program)
        self.process.stdin.write(json.dumps({"module": module, "ways": ways}) + "\n")
        self.process.stdin.flush()
        return [(kept, refused) for kept, refused in json.loads(self.process.stdout.readline())]

    def close(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture(scope="module")
def importer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Importer]:
    one = Importer(tmp_path_factory.mktemp("programs"))
    yield one
    one.close()


HEAD = "import os, re\nfrom os import environ\nalias = os.environ\nprefix = 'P_'\nseen = []\n"
FOR_A_PREFIX = {
    "dict": "seen = {k: v for k, v in os.environ.items() if k.startswith('P_')}",
    "list": "seen = [k for k in os.environ if k.startswith('P_')]",
    "set": "seen = sorted({k for k in environ.keys() if k.startswith(prefix) and environ[k]})",
    "generator": "seen = dict((k, v) for k, v in alias.items()\n  if k.startswith(prefix))",
    "several": "seen = [v for k, v in os.environ.items() if k.startswith(('P_', prefix))]",
    "in a function": "def f(p):\n  import os\n  return [k for k in os.environ if "
    "k.startswith(p)]\nseen = f('P_')",
    "statement": "def f():\n  for k, v in os.environ.items():\n    if k.startswith('P_'):\n      "
    "seen.append((k, v))\nf()",
    "continue": "def f():\n  for k in os.environ:\n    if not k.startswith(prefix):\n      "
    "continue\n    seen.append(k)\nf()",
    "generator function": "def f():\n  for k in os.environ:\n    if k.startswith(prefix):\n      "
    "yield k\nseen = list(f())",
}


@pytest.mark.parametrize("program", FOR_A_PREFIX.values(), ids=FOR_A_PREFIX.keys())
def test_a_loop_that_first_asks_for_a_prefix_reads_the_variables_with_it_alone(
    importer: Importer, program: str
) -> None:
    names = ["MINE", "OTHER", "NEW", "P_A", "P_NEW"]
    for env in (HOST, {"MINE": "1"}):
        ((kept, refused),) = importer(f"{HEAD}{program}\n", [(env, names)])
        assert ("P_A" in kept or "x" in kept.partition("'seen'")[2]) == (env is HOST)
        assert refused == ["P_A", "P_NEW"]


OVER = [  # with what each step of it gives
    ("k", "os.environ"), ("k, v", "os.environ.items()"), ("k", "os.environ.keys()"), ("k", "os.environ.values()"),
    ("k, v", "environ.items()"), ("k", "alias"), ("k, v", "alias.items()"), ("v, k", "os.environ.items()"),
    ("k", "os.environ.items()"), ("k, v", "os.environ"), ("k", "list(os.environ)"), ("k, v", "sorted(os.environ.items())"),
    ("v, k", "enumerate(os.environ)"), ("k", "map(str.upper, os.environ)"), ("k", "filter(None, os.environ)"),
    ("k, v", "iter(os.environ.items())"), ("k, v", "zip(os.environ, os.environ.values())"), ("k", "(x for x in os.environ)"),
    ("k", "os.environ.copy()"), ("k, v", "dict(os.environ).items()"), ("k", "{**os.environ}"), ("k", "[*os.environ]"),
    ("k", "reversed(list(os.environ))"), ("k", "os.environb"), ("k, v", "os.environb.items()"),
    ("k", "repr(os.environ).split(chr(39))"), ("k", "map(str, range(len(os.environ)))"), ("k, v", "(os.environ | {}).items()"),
]  # fmt: skip
TESTS = [
    "k.startswith('P_')", "k.startswith(('P_', 'Q_'))", "k.startswith(prefix)", "k.startswith(alias.get('OTHER'))",
    "k.startswith(v)", "k.startswith(k)", "k.startswith('')", "k.startswith(b'P_')", "k.startswith('_', 1)", "k.endswith('A')",
    "not k.startswith('P_')", "k.startswith('P_') and v", "v and k.startswith('P_')", "k.startswith('P_') or k == 'MINE'",
    "k.lower().startswith('p_')", "k.startswith((prefix := 'P_'))", "str.startswith(k, 'P_')", "k[:2] == 'P_'", "'P_' <= k < 'P`'",
    "k == 'MINE'", "'MINE' == k", "k in 'MINE OTHER'", "k in ('MINE',)", "k in {'MINE': 1}", "'M' in k", "re.match('M', k)",
    "len(k) == 4", "int(v)", "bytes(k, 'ascii') == b'MINE'", "'%s' % k == 'MINE'", "f'{k}' == 'MINE'", "seen.append(k)", "k",
    "sorted(k) == sorted('MINE')", "hash(k) == hash('MINE')", "getattr(Asked, k, 0)", "''.join(k) == 'MINE'", "True",
]  # fmt: skip
FORMS = [
    "seen = [({t}) for {t} in {over} if {test}]",
    "seen = [0 for {t} in {over} if {test}]",
    "seen = {{k: 1 for {t} in {over} if {test}}}",
    "seen = [1 for {t} in {over} if {test} if len(seen) or not seen]",
    "seen = [[k for {t} in {over} if {test}] for _ in range(2)]",
    "seen = [k for _ in '12' for {t} in {over} if {test}]",
    "seen = [{test} for {t} in {over}]",
    "seen = [k for {t} in {over} if {test}], len(list(os.environ))",
    "seen = [list(os.environ) for {t} in {over} if {test}]",
    "def f(): return [k for {t} in {over} if {test}], list(os.environ)\nseen = f()",
    "def f(): return [list(alias) for {t} in {over} if {test}], 1\nseen = f()",
    "seen = next((k for {t} in {over} if {test}), 0)",
    "seen = sum(1 for {t} in {over} if {test})",
    "seen = any({test} for {t} in {over})",
    ("def changing():\n  p = 'P_'\n  for found in (k for {t} in {over} if k.startswith(p)):\n    "
    "yield found\n    p = 'MI', 'Z'\nseen = list(changing())"),
    ("def changing():\n  global prefix\n  for {t} in {over}:\n    if {test}:\n      "
    "seen.append(k)\n      prefix = ''\nchanging()"),
    "for {t} in {over}:\n  if {test}:\n    seen.append(k)",
    "def f():\n  for {t} in {over}:\n    if {test}:\n      seen.append(k)\n  return k\nlast = f()",
    ("def f():\n  for {t} in {over}:\n    if {test}:\n      seen.append(k)\n  return "
    "str(locals())\nlast = f()"),
    ("def f():\n  for {t} in {over}:\n    if {test}:\n      seen.append(k)\n  else:\n    "
    "seen.append(k)\nf()"),
    ("def f():\n  for {t} in {over}:\n    if {test}:\n      seen.append(k)\n    else:\n      "
    "seen.append(1)\nf()"),
    "def f():\n  for {t} in {over}:\n    if {test}:\n      pass\n    seen.append(k)\nf()",
    "def f():\n  for {t} in {over}:\n    if not {test}:\n      continue\n    seen.append(k)\nf()",
    ("def f():\n  for {t} in {over}:\n    if not ({test}):\n      seen.append(0)\n      "
    "continue\nf()"),
    "def f():\n  global k\n  for {t} in {over}:\n    if {test}:\n      seen.append(1)\nf()",
    ("def f():\n  for {t} in {over}:\n    if {test}:\n      seen.append(1)\n  return lambda: "
    "k\nseen.append(f()())"),
    "class Asked:\n  kept = [k for {t} in {over} if {test}]\nseen = Asked.kept",
    ("class Asked:\n  for {t} in {over}:\n    if {test}:\n      "
    "seen.append(k)\nseen.append(Asked.k)"),
    "def f():\n  for {t} in {over}:\n    if {test}:\n      yield k\nseen = list(f())",
    ("def f(os):\n  return [k for {t} in {over} if {test}]\nclass Asked:\n  environ = environb = "
    "alias\nseen = f(Asked)"),
    ("def f(os):\n  for {t} in {over}:\n    if {test}:\n      seen.append(k)\n"
    "class Asked:\n  class environ:\n    items = keys = copy = lambda *_: map(str.lower, "
    "alias)\nf(Asked)"),
    ("def f(environ):\n  for {t} in {over}:\n    if {test}:\n      seen.append(k)\n"
    "class Asked:\n  items = lambda *_: enumerate(alias)\nf(Asked())"),
]  # fmt: skip


def _shared_wrongly(importer: Importer, program: str) -> list[Any]:
    """The variables that the host of this program would let differ although the program sees the
    difference.
    """
    (here, _), *elsewhere = importer(program, [(HOST, []), *((env, []) for _, env in ELSEWHERE)])
    changed = {
        name for (name, _), (kept, _) in zip(ELSEWHERE, elsewhere, strict=True) if kept != here
    }
    ((_, refused),) = importer(program, [(HOST, sorted(changed))])
    return sorted(changed - set(refused))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(OVER), st.sampled_from(TESTS), st.sampled_from(FORMS))
def test_no_variable_that_a_library_saw_in_any_way_differs_between_the_trials_of_a_host(
    importer: Importer, over: tuple[str, str], test: str, form: str
) -> None:
    program = f"{HEAD}{form.format(t=over[0], over=over[1], test=test)}\n"
    assert _shared_wrongly(importer, program) == [], program
