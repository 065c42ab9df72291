"""`aorta isolate` from the command line, on devices of this machine."""

import json
import re
from pathlib import Path

import pytest

from aorta.core.errors import UsageError
from aorta.core.names import expand_hosts
from support.aorta_cli import aorta, start_aorta
from support.waiting import wait_until

_JOB = """
case ",$CUDA_VISIBLE_DEVICES," in *,{guilty},*)
  echo "RuntimeError: CUDA error: uncorrectable ECC error encountered" >&2; exit 1;;
esac
"""


def job(folder: Path, guilty: int) -> str:
    path = folder / "job.sh"
    path.write_text(_JOB.format(guilty=guilty), encoding="utf-8")
    return str(path)


def test_the_broken_device_is_named_with_what_to_do(tmp_path: Path) -> None:
    words = ("isolate", "--nodes", "0-7", "--jobs", "2", "--json", "--", "bash", job(tmp_path, 5))
    done = aorta(*words, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    result = done.json()
    assert result["schema"] == "aorta.isolate/1"
    assert result["status"] == "found"
    (guilty,) = result["guilty"]
    assert (guilty["kind"], guilty["name"]) == ("device", "5")
    assert guilty["probability"] >= 0.95
    assert result["rates"] == {"guilty": 1.0, "background": 0.0}
    assert 0 < result["node_hours"] < 1
    assert all(
        "5" in place["nodes"] for place in result["placements"] if place["outcome"] == "reproduced"
    )
    written = json.loads((tmp_path / result["run_dir"] / "result.json").read_text(encoding="utf-8"))
    assert written["guilty"] == result["guilty"]
    assert result["next"]


def test_a_device_that_fails_now_and_then_is_not_said_to_fail_always(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(
        """case ",$AORTA_NODES," in *,1,*)
  echo x >> met; [ $(($(wc -l < met) % 2)) = 0 ] || { echo 'RuntimeError: ECC' >&2; exit 1; };;
esac
"""
    )
    done = aorta("isolate", "--nodes", "0-3", "--", "bash", str(path), cwd=tmp_path)
    assert re.search(
        r"trial \d+: reproduced in \S+ \(devices? [0-3,]*1[0-3,]*\): exit 1", done.stderr
    )
    seen = re.search(r"Device 1 .*: failed in (\d+) of (\d+) runs it took part in", done.stdout)
    assert seen is not None, done.stdout
    assert 0 < int(seen[1]) < int(seen[2])


def test_a_command_that_never_fails_blames_nothing(tmp_path: Path) -> None:
    done = aorta("isolate", "--nodes", "0-3", "--", "true", cwd=tmp_path)
    assert done.exit_code == 3
    assert done.stdout.startswith("It did not fail in ")
    assert "%" not in done.stdout
    document = aorta("isolate", "--nodes", "0-3", "--json", "-q", "--", "true", cwd=tmp_path).json()
    assert (document["status"], document["guilty"], document["software"]) == ("not_known", [], None)
    assert {node["probability"] for node in document["nodes"]} == {None}
    assert document["summary"][0].startswith("It did not fail in ")


def test_a_program_that_fails_everywhere_is_the_software(tmp_path: Path) -> None:
    words = ("isolate", "--nodes", "0-3", "--", "bash", "-c", "echo 'ValueError: bad' >&2; exit 1")
    done = aorta(*words, cwd=tmp_path)
    assert done.exit_code == 0
    assert "The software: every set of nodes fails alike" in done.stdout
    assert "aorta solve --" in done.stdout


def test_a_program_that_fails_on_any_two_nodes_accuses_no_link(tmp_path: Path) -> None:
    job = 'case "$AORTA_NODES" in *,*) echo "RuntimeError: broken exchange" >&2; exit 1;; esac'
    done = aorta("isolate", "--nodes", "0-3", "--", "bash", "-c", job, cwd=tmp_path)
    assert done.exit_code == 0
    sentence = "The software: every set of 2 or more nodes fails alike"
    assert done.stdout.startswith(sentence)
    run = tmp_path / done.stdout.split()[-1]
    page = aorta("report", str(run), "--output", str(tmp_path / "page.html"))
    assert page.exit_code == 0, page.stderr
    assert sentence in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_dry_run_shows_placements_and_cost_and_runs_nothing(tmp_path: Path) -> None:
    done = aorta("isolate", "--nodes", "0-7", "--dry-run", "--", "false", cwd=tmp_path)
    assert done.exit_code == 0
    assert re.search(r"first +[0-7](,[0-7])*\n", done.stderr)
    assert "node-runs, if one guilty node fails always" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_killed_in_its_fourth_run_it_goes_on_and_runs_nothing_twice(tmp_path: Path) -> None:
    """The run that was cut off is run again, and no other."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    script = Path(job(tmp_path, 2))
    script.write_text(
        f'echo "$AORTA_NODES" >> {ran}\n'
        f"[ $(wc -l < {ran}) -ne 4 ] || until [ -e {go} ]; do sleep 0.05; done\n"
        + script.read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    words = ("--nodes", "0-7", "--json", "--", "bash", str(script))
    with start_aorta("isolate", *words, cwd=tmp_path) as process:
        wait_until(lambda: ran.is_file() and ran.read_text().count("\n") == 4, "a fourth run")
        process.kill()
    go.touch()
    (run,) = (tmp_path / "isolate").glob("2*")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = aorta("isolate", "--resume", run, "--json", cwd=elsewhere).json()
    assert result["guilty"][0]["name"] == "2"
    placed = [",".join(place["nodes"]) for place in result["placements"]]
    assert ran.read_text().splitlines() == [*placed[:4], *placed[3:]]


def test_a_budget_leaves_what_is_known(tmp_path: Path) -> None:
    words = ("--nodes", "0-7", "--json", "--", "bash", job(tmp_path, 2))
    stopped = aorta("isolate", "--max-trials", "2", *words, cwd=tmp_path)
    assert stopped.exit_code == 4
    assert (stopped.json()["status"], stopped.json()["runs"]) == ("partial", 2)
    run = stopped.json()["run_dir"]
    assert stopped.json()["next"] == [f"aorta isolate --resume {run}"]
    more = aorta("isolate", "--resume", run, "--max-trials", "4", "--json", cwd=tmp_path)
    assert (more.exit_code, more.json()["status"], more.json()["runs"]) == (4, "partial", 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "n[1-", "--", "true"), "--nodes: found 'n[1-', expected names"),
        (("--nodes", "3", "--", "true"), "--nodes: names one node"),
        (("--", "true"), "give --nodes and the job behind --"),
        (("--nodes", "0-3"), "give --nodes and the job behind --"),
        (("--nodes", "a,b", "--", "true"), "nodes are its devices"),
        (("--nodes", "0-3", "--world-size", "9", "--", "true"), "--world-size: the job needs 9"),
        (("--nodes", "0-3", "--", "nosuchcmd"), "'nosuchcmd' cannot be started"),
        (("--nodes", "0-3", "--", "python3", "-u", "trian.py"), "there is no file 'trian.py'"),
    ],
)
def test_what_cannot_be_run_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = aorta("isolate", *words, cwd=tmp_path)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_lists_of_hosts_are_read_as_schedulers_write_them() -> None:
    assert expand_hosts("n[08-10,3],login", "x") == ("n08", "n09", "n10", "n3", "login")
    assert expand_hosts("r[1-2]n[1-2]", "x") == ("r1n1", "r1n2", "r2n1", "r2n2")
    with pytest.raises(UsageError, match="'n2' twice"):
        expand_hosts("n[1-2],n2", "x")


def test_its_page_shows_the_guilty_device_and_the_bundle_ships_the_result(tmp_path: Path) -> None:
    words = ("isolate", "--nodes", "0-3", "-q", "--", "bash", job(tmp_path, 1))
    assert aorta(*words, cwd=tmp_path).exit_code == 0
    (run_dir,) = (tmp_path / "isolate").glob("2*")
    page = aorta("report", str(run_dir), cwd=tmp_path)
    assert page.stdout.startswith("Device 1")
    assert 'class="heat"' in (run_dir / "report.html").read_text(encoding="utf-8")
    packed = aorta("bundle", str(run_dir), "--ticket", "T-1", "--json", cwd=tmp_path)
    assert packed.exit_code == 0, packed.stderr
    shown = aorta("bundle", "show", packed.json()["path"], cwd=tmp_path)
    assert "result.json" in shown.stdout


def test_the_prior_of_a_node_comes_from_earlier_logs_and_is_said(tmp_path: Path) -> None:
    log = tmp_path / "rank_6.err"
    log.write_text(
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
        encoding="utf-8",
    )
    words = ("--nodes", "0-7", "--history", str(log), "--json", "--", "bash", job(tmp_path, 6))
    result = aorta("isolate", *words, cwd=tmp_path).json()
    assert result["guilty"][0]["name"] == "6"
    assert any(line.startswith("6: hardware_fault") for line in result["priors"])
