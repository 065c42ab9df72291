"""The case of a stopped job, and the command that comes next."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from aorta.core.errors import Exit
from aorta.launch.records import (
    Action,
    CaseRequest,
    CycleEvidence,
    CycleStart,
    FailedCycle,
    JobEnding,
    Ruling,
    SourceVerdict,
    WorkerEnd,
)
from aorta.reduce.spec import ReduceSpec, read_spec
from support.aorta_cli import aorta
from support.launching import Site, script
from support.reductions import SURE

TRAINS = """
    for step in range(1, int(sys.argv[2]) + 1):
        print(f"step {step} loss 0.5", flush=True)
        if step == 1:
            raise RuntimeError(f"value {step * 0.5} out of range at step {step}")
"""


def test_launch_stops_and_its_case_is_reduced_as_it_is(site: Site) -> None:
    job = script(site.folder, TRAINS)
    end = site.run("--max-restarts", "3", str(job), "--steps", "8")
    assert end.code == 93, end
    case = site.logs / "case"
    assert f"aorta reduce --spec {case}/aorta.yaml" in end.err
    finding = json.loads((case / "finding.json").read_text())
    assert finding["finding"]["class"] == "user_exception"
    assert finding["decision"]["action"] == "STOP"
    assert json.loads((case / "env.json").read_text())["schema"].startswith("aorta.env/")
    assert "RuntimeError" in (case / "logs" / "rank_0.err").read_text()
    spec = case / "aorta.yaml"
    reduced = aorta("reduce", "--spec", spec, "--output", "reduced", "--json", cwd=site.folder)
    assert reduced.exit_code == 0, reduced.stderr
    result = json.loads(reduced.stdout)
    assert (result["axes"][0]["name"], result["axes"][0]["final"]) == ("STEPS", 1)


def test_the_case_of_several_nodes_names_the_command_that_tells_the_node_from_the_job(
    site: Site,
) -> None:
    job = script(site.folder, TRAINS)
    one = site.start_node(0, "--max-restarts", "0", str(job), "--steps", "8")
    other = ("--local-addr", "127.0.0.2")
    two = site.start_node(1, *other, "--max-restarts", "0", str(job), "--steps", "8")
    assert {one.wait().code, two.wait().code} <= {1, 93}
    drafted_spec = (site.logs / "case" / "aorta.yaml").read_text()
    (written,) = re.findall(r"# Is it one of the nodes\?  aorta (isolate .*)", drafted_spec)
    words = shlex.split(written)
    assert words[words.index("--nodes") + 1].split(",") == ["127.0.0.1", "127.0.0.2"]
    assert words[words.index("--history") + 1] == str(site.logs / "cycle_0")
    planned = aorta(words[0], "--dry-run", *words[1:], cwd=site.folder)
    assert planned.exit_code == 0, planned.stderr
    assert "nodes  2" in planned.stderr
    assert "if one guilty node fails always" in planned.stderr


READS = """
    name = "".join(["sha", "rd.txt"])
    if "bad row" in open(os.path.join("data", name)).read() and int(sys.argv[2]) > 2:
        raise ValueError("bad row in the shard")
"""


def test_a_case_runs_where_neither_the_script_nor_its_data_lie(site: Site, tmp_path: Path) -> None:
    (site.folder / "data").mkdir()
    (site.folder / "data" / "shard.txt").write_text("bad row\n")
    (site.folder / "data" / "never-opened.txt").write_text("nobody reads this\n")
    job = script(site.folder, READS)
    end = site.run("--max-restarts", "1", str(job), "--steps", "8")
    assert end.code in (1, 93), end
    there = tmp_path / "elsewhere"
    shutil.copytree(site.logs / "case", there)
    shutil.rmtree(site.folder / "data")
    job.unlink()
    assert (there / "workload" / "data" / "shard.txt").is_file()
    assert not (there / "workload" / "data" / "never-opened.txt").exists()
    spec = there / "elsewhere.yaml"
    assert str(site.folder) not in spec.read_text()
    spec.write_text(spec.read_text() + yaml.safe_dump({"budget": SURE}))
    reduced = aorta("reduce", "--spec", spec.name, "--output", "reduced", "--json", cwd=there)
    assert reduced.exit_code == 0, reduced.stderr
    assert json.loads(reduced.stdout)["axes"][0]["final"] == 3


def drafted(
    tmp_path: Path,
    *arguments: str,
    note: str = "",
    finding: dict[str, object] | None = None,
    signal: int | None = None,
) -> ReduceSpec:
    """The spec that is drafted for a failure, as `aorta reduce` reads it."""
    from aorta.launch.case import draft_spec
    from aorta.launch.options import parse

    ends = (WorkerEnd(0, None if signal else 1, signal), WorkerEnd(1, 0))
    start = CycleStart("job", 3, ("here",))
    evidence = CycleEvidence("a", "here", 0, ranks=(0, 1), ends=ends, note=note)
    ending = JobEnding(Exit.STOP, "no hope")
    ruling = Ruling(SourceVerdict(Action.STOP, "no\nhope", finding=finding), 5, ending=ending)
    options = parse(arguments or ("train.py",))
    request = CaseRequest(
        log_dir=tmp_path,
        failed=FailedCycle(start, (evidence,)),
        ruling=ruling,
        command=options.command,
        ranks_per_node=options.torch.nproc_per_node,
        devices=None,
        hang_timeout=options.settings.hang_timeout_seconds,
        opened=(),
    )
    text = draft_spec(request, tmp_path / "aorta.yaml")
    return read_spec(yaml.safe_load(text), file="aorta.yaml", base=tmp_path).content


def line(text: str) -> dict[str, object]:
    return {"evidence": [{"file": "/logs/cycle_3/rank_0.err", "line": 9, "text": text}]}


@pytest.mark.parametrize(
    ("text", "another_run"),
    [
        (
            "RuntimeError: CUDA error at 0x7f00 (step 12, loss 0.5)",
            "RuntimeError: CUDA error at 0x1b (step 7, loss 1.25)",
        ),
        ("AssertionError: a[0] == b(*)?", "AssertionError: a[0] == b(*)?"),
    ],
)
def test_the_oracle_is_the_line_that_told_the_failure_with_its_numbers_left_open(
    tmp_path: Path, text: str, another_run: str
) -> None:
    oracle = drafted(tmp_path, finding=line(text)).oracle
    assert oracle is not None
    assert oracle.kind == "regex"
    assert re.search(oracle.pattern, text)
    assert re.search(oracle.pattern, another_run)
    assert not re.search(oracle.pattern, "RuntimeError: something else")


def test_a_hang_is_looked_for_as_a_hang_and_a_crash_by_its_signal(tmp_path: Path) -> None:
    hang = drafted(tmp_path, "--ft-hang-timeout", "45", "train.py", note="hang: silent").oracle
    assert hang is not None
    assert hang.kind == "hang"
    assert hang.silent_for == 45
    crash = drafted(tmp_path, signal=11).oracle
    assert crash is not None
    assert crash.kind == "regex"
    assert re.search(crash.pattern, "  exitcode  : -11 (pid: 3)")
    unknown = drafted(tmp_path).oracle
    assert unknown is not None
    assert unknown.kind == "exit_code"


def test_axes_are_the_numbers_the_script_reads_and_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        'import os\nos.environ["BATCH"]; os.getenv("DEPTH", 12); os.environ.get("RANK", "9")\n'
        'os.environ["NAME"]; os.environ.get("ONE", "1")\n'
    )
    monkeypatch.setenv("BATCH", "64")
    monkeypatch.setenv("NAME", "resnet")
    arguments = ("--lr", "it's 1", "--num-steps", "500", "--width=64", "--seed", "7")
    spec = drafted(tmp_path, str(path), *arguments)
    assert [(axis.name, axis.kind) for axis in spec.axes] == [
        ("NUM_STEPS", "env"),
        ("WIDTH", "env"),
        ("BATCH", "env"),
        ("DEPTH", "env"),
        ("ranks", "world_size"),
    ]
    command = spec.workload.command
    assert isinstance(command, str)
    words = '--lr \'it\'"\'"\'s 1\' --num-steps "$NUM_STEPS" --width="$WIDTH" --seed 7'
    assert command.endswith(words)


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("/work/train.py", "train.py"),
        ("--data=/work/shards", "--data=shards"),
        ("/work/a:/work/b", "a:b"),
        ("/mnt/work/shards", "/mnt/work/shards"),
        ("/work-2/shards", "/work-2/shards"),
        ("../work/shards", "../work/shards"),
    ],
)
def test_only_paths_below_the_working_directory_are_made_relative_to_it(
    word: str, there: str
) -> None:
    from aorta.launch.case import inside

    assert inside(Path("/work"), word) == there
