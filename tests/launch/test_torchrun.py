"""A script written for torchrun runs unchanged, and the output goes where torchrun would show
it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aorta.core.errors import UsageError
from support.launching import Site, environment, script
from support.waiting import patience

TELLS = """
    import json
    told = {k: v for k, v in os.environ.items() if k not in sys.modules["builtins"].__dict__}
    print(json.dumps({"argv": sys.argv[1:], "main": __name__, "file": sys.argv[0], "env": told}))
"""
DIFFERS_BY_NATURE = {
    *("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "_", "OLDPWD"),
    *("AORTA_JOB_ID", "AORTA_CYCLE", "AORTA_CYCLE_ID", "AORTA_HEARTBEAT_FILE"),
}


def torchrun(folder: Path, *arguments: str) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert ran.returncode == 0, ran.stderr
    return parse(ran.stdout)


def parse(out: str) -> dict[str, object]:
    content: dict[str, object] = json.loads(out.splitlines()[0])
    env = content["env"]
    assert isinstance(env, dict)
    content["env"] = {key: env[key] for key in env if key not in DIFFERS_BY_NATURE}
    return content


def test_a_script_sees_what_torchrun_would_show_it(site: Site) -> None:
    job = script(site.folder, TELLS)
    how = ("--standalone", "--nproc-per-node", "1", "--max-restarts", "2")
    arguments = (*how, str(job), "--lr", "0.1", "--", "x")
    end = site.run(*arguments)
    assert end.code == 0, end
    assert parse(end.out) == torchrun(site.folder, *arguments)


def test_modules_and_other_programs_run_too(site: Site) -> None:
    script(site.folder, "print('module', __name__, sys.argv[1:])", name="some_module.py")
    end = site.run("-m", "some_module", "--flag")
    assert (end.code, end.out) == (0, "module __main__ ['--flag']\n"), end
    end = site.run("--no-python", "--nproc-per-node", "2", "echo", "hello")
    assert (end.code, end.out) == (0, "hello\nhello\n"), end


@pytest.mark.parametrize(
    ("how", "out"),
    [
        ((), ["out 0", "out 1"]),
        (("-t", "0:1", "-r", "1:3"), ["[default0]:out 0"]),
    ],
)
def test_the_console_shows_what_torchrun_would(
    site: Site, how: tuple[str, ...], out: list[str]
) -> None:
    job = script(site.folder, "os.write(1, f'out {rank}\\n'.encode())")  # a line at once
    end = site.run("--nproc-per-node", "2", *how, str(job))
    assert end.code == 0, end
    assert sorted(end.out.splitlines()) == out
    for rank in (0, 1):
        assert (site.logs / "cycle_0" / f"rank_{rank}.out").read_text() == f"out {rank}\n"


@pytest.mark.parametrize(
    ("asked", "plain", "teed"),
    [
        ({}, ["ALL", "ALL"], ["NONE", "NONE"]),
        ({"redirects": "3"}, ["NONE", "NONE"], ["NONE", "NONE"]),
        ({"redirects": "0:1"}, ["ERR", "ALL"], ["NONE", "NONE"]),
        ({"tee": "1"}, ["ERR", "ERR"], ["OUT", "OUT"]),
        ({"only": frozenset({1})}, ["NONE", "ALL"], ["NONE", "NONE"]),
        ({"tee": "3", "only": frozenset({0})}, ["NONE", "NONE"], ["ALL", "NONE"]),
    ],
)
def test_redirects_and_tees_mean_what_they_mean_to_torchrun(
    asked: dict[str, Any], plain: list[str], teed: list[str]
) -> None:
    from aorta.launch.output import Shown

    shown = Shown(**asked)
    assert [shown.plain_of(rank, 2).name for rank in (0, 1)] == plain
    assert [shown.tee_of(rank, 2).name for rank in (0, 1)] == teed


def test_a_second_run_overwrites_nothing(site: Site) -> None:
    job = script(site.folder, "print('one', end='')")
    for _ in range(2):
        end = site.run("--nproc-per-node", "2", str(job))
        assert end.code == 0, end
    assert site.cycles() == ["cycle_0", "cycle_1"]
    assert (site.logs / "cycle_0" / "rank_1.out").read_text() == "one"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nnodes", "0", "x.py"), "--nnodes 0"),
        (("--nnodes", "3:2", "x.py"), "MIN:MAX"),
        (("--rdzv-backend", "etcd", "x.py"), "use c10d"),
        (("--max-restarts", "many", "x.py"), "max-restarts"),
        (("--nproc-per-node", "some", "x.py"), "nproc_per_node"),
        ((), "training_script"),
        (("--ft-attribution-aggregation", "most", "x.py"), "aggregation"),
        (("--nproc-per-node", "0", "x.py"), "above 0"),
        (("--rdzv-conf", "join_timeout=soon", "x.py"), "expected a number"),
        (("--rdzv-conf", "nonsense", "x.py"), "must have a value"),
        (("-r", "7", "x.py"), "does not match"),
        (("--max-restarts", "-1", "x.py"), "max_restarts"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_runs(
    arguments: tuple[str, ...], says: str
) -> None:
    from aorta.launch import options

    with pytest.raises(UsageError, match=says):
        options.parse(arguments)


def test_a_refusal_is_one_line_and_exit_2(site: Site) -> None:
    end = site.run("--nnodes", "3:2", "x.py")
    assert end.code == 2, end
    assert "MIN:MAX" in end.err
    assert "Traceback" not in end.err
