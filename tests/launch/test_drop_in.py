"""In place of torchrun and of ft_launcher: what an event handler and an old command line see."""

import ast
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launching import Site, script

VALUES = {
    "logs_specs": "default",
    "ft_attribution_endpoint": "http://127.0.0.1:1",
    "ft_attribution_stop_action": "log",
}
EVENTS = """
    import logging
    from torch.distributed.elastic.events import handlers

    class Writes(logging.Handler):
        def emit(self, record):
            with open("events", "a") as file:
                file.write(record.getMessage() + "\\n")

    handlers._log_handlers["to_file"] = Writes()
    from aorta.__main__ import main
    main()
"""


def test_an_event_handler_hears_of_workers_that_start_and_fail(
    site: Site,
) -> None:
    job = script(
        site.folder, "import signal\nif rank == 1:\n    time.sleep(600)\ntime.sleep(1); sys.exit(3)"
    )
    runner = site.folder / "with_handler.py"
    runner.write_text(textwrap.dedent(EVENTS))
    end = site.run(
        *("--nproc-per-node", "2", "--max-restarts", "0", "--event-log-handler", "to_file"),
        str(job),
        program=runner.stem,
    )
    assert end.code == 1, end.err
    told = [json.loads(line) for line in (site.folder / "events").read_text().splitlines()]
    seen = {(event["source"], event["metadata"]["state"]) for event in told}
    assert {("WORKER", "START"), ("WORKER", "FAILED")} <= seen
    assert "Root Cause (first observed failure)" in end.err


NAMED_SO = (
    "import sys; del sys.argv[1]  # launch\nfrom aorta.__main__ import ft_launcher\nft_launcher()\n"
)


def test_two_agents_of_ft_launcher_meet_as_they_do_under_nvidia_s(site: Site) -> None:
    """Its rendezvous is c10d: nobody numbers the nodes. And its attribution logs a STOP, unless it
    is asked to act.
    """
    (site.folder / "its_name.py").write_text(NAMED_SO)
    job = script(site.folder, "print('world', os.environ['WORLD_SIZE']); import nowhere_at_all")
    job9 = ("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "job9", "--max-restarts", "1")
    where = (*job9, "--rdzv-endpoint", f"127.0.0.1:{site.port}", "--local-addr", "127.0.0.1")
    agents = [site.start(*where, str(job), program="its_name") for _ in range(2)]
    ends = [agent.wait() for agent in agents]
    assert [end.code for end in ends] == [1, 1], ends
    assert len(site.cycle(0)["nodes"]) == 2
    assert any("dry run, the job is not stopped: attribution decided" in end.err for end in ends)


def test_a_command_line_and_a_file_of_ft_launcher_are_understood_or_named(site: Site) -> None:
    config = site.folder / "ft.yaml"
    config.write_text(
        "fault_tolerance:\n"
        "  rank_heartbeat_timeout: 1800\n"
        "  storage_healthcheck_path: /lustre\n"
        "  num_warmup_iterations: 5\n"
        "  attribution_backends: [lib]\n"
        "  attribution_timeout_seconds: 30.0\n"
        "  attribution_dry_run: true\n"
        "  attribution_endpoint: localhost\n"
        "  max_no_progress_cycles: 7\n"
        "  attribution: {aggregation: all}\n"
    )
    job = script(site.folder, "print('hello', rank)")
    (site.folder / "its_name.py").write_text(NAMED_SO)
    end = site.run(
        *("--ft-cfg-path", str(config), "--ft-per-cycle-applog-prefix", "app"),
        *("--ft-rank-heartbeat-timeout", "900", "--ft-attribution-stop-action", "log"),
        *("--ft-enable-nic-healthcheck", "false", "--ft-ignore-missing-cfg", str(job)),
        program="its_name",
    )
    assert end.code == 0, end.err
    assert "--ft-rank-heartbeat-timeout is deprecated" in end.err
    for name in ("storage_healthcheck_path", "num_warmup_iterations", "attribution_backends"):
        assert f"{name} is ft_launcher's; it has no counterpart here" in end.err
    assert "it is read as attribution.timeout_seconds" in end.err
    assert "the attribution endpoint localhost is ft_launcher's" in end.err
    for flag in ("enable-nic-healthcheck", "per-cycle-applog-prefix"):
        assert f"--ft-{flag} is ft_launcher's; it has no counterpart here" in end.err


def test_bars_of_other_work_are_not_steps_of_the_job(site: Site) -> None:
    """A job that comes a hundred steps further in every cycle goes on, whatever else counts to its
    end in each.
    """
    job = script(
        site.folder,
        """
        print("\\rMap: 100%|##########| 52002/52002 [00:01<00:00, 40000.00 examples/s]", file=sys.stderr)
        for step in range(100 * attempt, 100 * attempt + 100):
            print(f"step {step} loss 0.5", flush=True)
        sys.exit(3 if attempt < 4 else 0)
        """,
    )
    end = site.run("--max-restarts", "5", "--ft-attribution-dry-run", str(job))
    assert end.code == 0, end
    assert len(site.cycles()) == 5


@pytest.mark.filterwarnings("default:--ft-.* is deprecated")
def test_every_ft_option_of_ft_launcher_is_understood_or_named() -> None:
    from aorta.launch.options import parse

    folder = Path(sys.prefix) / "peer" / "nvidia_resiliency_ext" / "fault_tolerance"
    options = [
        option
        for file in ("launcher.py", "cli_args.py")
        for call in ast.walk(ast.parse((folder / file).read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument"
        for option in _names_and_value(call)
    ]
    assert len(options) > 40
    for name, value in options:
        parse([name, *value, "job.py"])


def _names_and_value(call: ast.Call) -> Iterator[tuple[str, list[str]]]:
    """One option, with a value that it takes."""
    how = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    names = [each.value for each in call.args if isinstance(each, ast.Constant)]
    wanted = (each for each in names if isinstance(each, str) and "_" not in each)
    for name in (each for each in wanted if each.startswith("--ft-")):
        words = name.removeprefix("--").replace("-", "_")
        if "store_" in how.get("action", "") or "check_env" in how.get("action", ""):
            yield name, []
        elif "choices" in how and words not in VALUES:
            yield name, [str(ast.literal_eval(how["choices"])[0])]
        else:
            yield name, [VALUES.get(words, "1")]
