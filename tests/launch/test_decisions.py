"""Who decides, when, and what everybody then does."""

import re
import signal
from pathlib import Path

import pytest

from aorta.attribution import AttributeRequest, attribute, collect
from support.aorta_cli import aorta
from support.launching import RESTARTS_AND_WAITS, Oracle, Site, answer, script, serving
from support.waiting import patience, wait_until

FAILS = "print('attempt', attempt); sys.exit(3)"
FAILS_ONCE = "print('attempt', attempt); sys.exit(3 if attempt == 0 and rank == 0 else 0)"


def asked(oracle: Oracle, *more: str) -> tuple[str, ...]:
    return ("--ft-attrsvc-url", oracle.url, "--max-restarts", "3", *more)


def test_stop_ends_every_agent_with_93_and_starts_no_worker_again(site: Site) -> None:
    job = script(site.folder, FAILS)
    with serving(Oracle(lambda _: answer("STOP", "the data is gone"))) as oracle:
        ends = site.run_nodes(2, *asked(oracle), str(job))
    assert [end.code for end in ends] == [93, 93], ends
    assert all("the data is gone" in end.err for end in ends)
    assert site.cycles() == ["cycle_0"]
    info = site.cycle(0)
    assert re.fullmatch(r"job7-[0-9a-f]{8}:0", info["cycle_id"])
    assert oracle.heard(info["cycle_id"]) == 2, "every agent triggers"
    assert oracle.reads == [info["cycle_id"]], "one read, whatever the number of agents"
    assert info["decision"]["action"] == "STOP"
    assert info["decided_by"] == f"attrsvc {oracle.url}"
    assert info["ending"] == {"exit_code": 93, "reason": info["ending"]["reason"]}
    assert [rank["rank"] for rank in info["ranks"]] == [0, 1]
    assert any(rank["exit_code"] == 3 for rank in info["ranks"])


def test_restart_runs_the_next_cycle_and_each_cycle_is_asked_about_by_its_own_id(
    site: Site,
) -> None:
    job = script(site.folder, "print('attempt', attempt); sys.exit(3 if attempt < 2 else 0)")
    with serving(Oracle(lambda cycle: answer("RESTART", f"verdict on {cycle}"))) as oracle:
        end = site.run(*asked(oracle, "--rdzv-id", "job7", "--standalone"), str(job))
    assert end.code == 0, end
    ids = [site.cycle(n)["cycle_id"] for n in (0, 1)]
    assert oracle.reads == ids
    assert [cycle.partition(":")[2] for cycle in ids] == ["0", "1"]
    reasons = [site.cycle(n)["decision"]["reason"] for n in (0, 1)]
    assert reasons == [f"verdict on {cycle}" for cycle in ids]
    assert site.cycle(2)["decision"] is None
    assert (site.logs / "current").readlink() == Path("cycle_2")


SILENT_BESIDE_A_MISTAKE = """
    import signal
    def takes_its_time(number, frame):
        time.sleep(4)  # longer than ranks come to the same line apart from one another
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    signal.signal(signal.SIGTERM, takes_its_time)
    open(f"ready_{rank}", "w").close()
    while not (os.path.exists("ready_0") and os.path.exists("ready_1")):
        time.sleep(0.05)
    if rank == 1:
        import a_module_that_is_nowhere
    time.sleep(600)
"""


def test_a_rank_that_its_agent_stopped_does_not_speak_against_the_one_that_shows_a_mistake(
    site: Site,
) -> None:
    job = script(site.folder, SILENT_BESIDE_A_MISTAKE)
    end = site.run("--standalone", "--nproc-per-node", "2", "--max-restarts", "3", str(job))
    assert (end.code, site.cycles()) == (93, ["cycle_0"]), end
    stopped, failed = sorted(site.cycle(0)["ranks"], key=lambda rank: rank["rank"])
    assert (stopped["signal"], stopped["stopped_by_agent"]) == (signal.SIGTERM, True)
    assert (failed["exit_code"], failed["stopped_by_agent"]) == (1, False)
    told = attribute(collect(AttributeRequest(logs=(site.logs / "cycle_0",))))
    assert (told.decision.action, told.finding.root.rank) == ("STOP", 1)


SHAPES = (
    "inconsistent tensor size, expected tensor [3] and src [4] to have the same number of elements, "
    "but got 3 and 4 elements respectively"
)
SETTINGS = "the schedule asks for an interval that is not positive"


@pytest.mark.parametrize(
    ("raised", "cycles"),
    [
        (f"RuntimeError({SHAPES!r})", 2),
        (f"ValueError({SETTINGS!r})", 2),
        # Two failures in turn: the third cycle is the first one's again.
        (f"RuntimeError({SHAPES!r}) if attempt % 2 == 0 else OSError(5, 'Input/output error')", 3),
    ],
)
def test_what_is_not_clear_enough_to_stop_for_is_restarted_once_and_not_to_the_limit(
    site: Site, raised: str, cycles: int
) -> None:
    steps = "for n in range(1, 6): print(f'step {n} loss=1.0', flush=True)\n"
    job = script(site.folder, "")
    job.write_text(job.read_text() + steps + f"raise {raised}\n")
    unlimited = ("--max-restarts", "5", "--ft-max-no-progress-cycles", "0")
    end = site.run("--standalone", *unlimited, str(job))
    assert (end.code, len(site.cycles())) == (93, cycles), end
    rules = [site.cycle(n)["decision"]["rule"] for n in range(cycles)]
    assert (rules[0], rules[-1]) == ("uncertain", "repeated")


def test_a_script_that_is_not_there_is_a_missing_file_and_is_named(site: Site) -> None:
    end = site.run("--standalone", "--max-restarts", "3", "nope.py")
    assert (end.code, site.cycles()) == (93, ["cycle_0"]), end
    info = site.cycle(0)
    assert info["finding"]["class"] == "missing_file"
    assert any("nope.py" in advice["text"] for advice in info["decision"]["advice"])


def test_a_trigger_carries_exit_codes_and_whole_logs(site: Site) -> None:
    job = script(
        site.folder,
        """
        open(os.environ["AORTA_HEARTBEAT_FILE"], "w").write("12")
        print("last words", flush=True)
        os.kill(os.getpid(), 11)
        """,
    )
    with serving(Oracle(lambda _: answer("STOP"))) as oracle:
        end = site.run(*asked(oracle), str(job))
    assert end.code == 93, end
    (trigger,) = oracle.triggers
    assert trigger["lived_sec"] == pytest.approx(trigger["ended"] - trigger["started"])
    assert trigger["heartbeat_step"] == 12
    (failure,) = trigger["failures"]
    assert (failure["rank"], failure["exit_code"], failure["signal"]) == (0, None, 11)
    assert "last words" in trigger["tails"][0]["text"]
    assert any("last words" in Path(path).read_text() for path in trigger["log_paths"])


def test_a_dry_run_decides_and_logs_and_does_not_act(site: Site) -> None:
    job = script(site.folder, FAILS_ONCE)
    with serving(Oracle(lambda _: answer("STOP", "no hope"))) as oracle:
        end = site.run(*asked(oracle, "--ft-attribution-dry-run"), str(job))
    assert end.code == 0, end
    assert "dry run" in end.err
    assert "no hope" in end.err
    decision = site.cycle(0)["decision"]
    assert (decision["action"], decision["dry_run"]) == ("STOP", True)


def test_a_verdict_that_comes_too_late_restarts_and_a_late_stop_is_logged_and_dropped(
    site: Site,
) -> None:
    job = script(site.folder, RESTARTS_AND_WAITS)
    with serving(Oracle(lambda _: answer("STOP", "too late"), delay=2.0)) as oracle:
        agent = site.start(*asked(oracle, "--ft-attribution-decision-timeout", "0.5"), str(job))
        wait_until(lambda: "late STOP" in agent.err(), "a late STOP")
        (site.folder / "go").touch()
        end = agent.wait()
    assert end.code == 0, end
    assert site.cycle(0)["decision"]["action"] == "UNKNOWN"
    assert site.cycles() == ["cycle_0", "cycle_1"]


def test_a_late_stop_ends_the_job_where_that_is_asked_for(site: Site) -> None:
    job = script(site.folder, "print('attempt', attempt); time.sleep(600 * attempt); sys.exit(3)")
    how = ("--ft-attribution-decision-timeout", "0.5", "--ft-attribution-late-stop")
    with serving(Oracle(lambda _: answer("STOP", "no use"), delay=3.0)) as oracle:
        ends = site.run_nodes(2, *asked(oracle, *how), str(job))
    assert [end.code for end in ends] == [93, 93], ends
    assert all("late: attribution decided STOP" in end.err for end in ends)
    assert site.cycles() == ["cycle_0", "cycle_1"]
    assert site.cycle(0)["decision"]["action"] == "STOP"
    assert site.cycle(1)["ending"]["exit_code"] == 93
    assert (site.logs / "case" / "aorta.yaml").is_file()


def test_a_dry_run_is_not_stopped_by_the_limit_on_cycles_without_progress_either(
    site: Site,
) -> None:
    job = script(site.folder, "sys.exit(3 if attempt < 2 else 0)")
    limit = ("--ft-max-no-progress-cycles", "1", "--max-restarts", "3")
    with serving(Oracle(lambda _: answer("RESTART"))) as oracle:
        asks = ("--ft-attrsvc-url", oracle.url)
        end = site.run(*asks, *limit, "--ft-attribution-dry-run", str(job))
        assert end.code == 0, end
        assert "dry run, the job is not stopped: 1 cycles in a row made no progress" in end.err
        stopped = site.run(*asks, *limit, str(job), log_dir="more")
    assert stopped.code == 93, stopped
    first = next(line for line in stopped.err.splitlines() if "no progress" in line)
    assert "--ft-max-no-progress-cycles 1, 0 turns it off" in first
    assert stopped.err.index(first) < stopped.err.index("Root Cause")
    page = aorta("report", site.folder / "more", "--json").json()
    assert page["answer"].endswith(": stop")


def test_a_dead_service_and_a_lying_one_cost_a_job_nothing_but_a_line(site: Site) -> None:
    job = script(site.folder, FAILS_ONCE)
    with serving(Oracle(lambda _: b"<html>certainly not JSON")) as oracle:
        end = site.run(*asked(oracle, "--ft-attribution-http-url", "http://127.0.0.1:9"), str(job))
    assert end.code == 0, end
    assert "could not be sent cycle" in end.err
    assert "not JSON" in end.err
    assert "unreachable" in end.err


def test_an_answer_about_another_cycle_stops_nobody(site: Site) -> None:
    job = script(site.folder, FAILS_ONCE)
    lie = {**answer("STOP"), "cycle_id": "somebody-else:0"}
    with serving(Oracle(lambda _: lie)) as oracle:
        end = site.run(*asked(oracle), str(job))
    assert end.code == 0, end
    assert "another cycle" in end.err


def test_when_the_leader_dies_while_deciding_the_next_leader_reads_the_same_verdict(
    site: Site,
) -> None:
    job = script(site.folder, "time.sleep(0.5); sys.exit(3)")
    soon = ("--ft-attribution-decision-timeout", str(patience(5)))
    with serving(Oracle(lambda _: answer("STOP", "same for all"), delay=3.0)) as oracle:
        how = (*asked(oracle, *soon), str(job))
        first = site.start_node(1, *how, nodes="1:2")  # ranks follow process ids
        host = site.start_node(0, *how, nodes="1:2")
        wait_until(lambda: oracle.reads)
        first.signal(signal.SIGKILL)
        survivor = host.wait()
    assert survivor.code == 93, survivor
    assert "same for all" in survivor.err
    assert oracle.reads == [site.cycle(0)["cycle_id"]] * 2
    assert site.cycles() == ["cycle_0"]


@pytest.mark.parametrize("wrong", ["keep_alive_interval=0", "last_call_timeout=soon"])
def test_a_wrong_setting_of_the_rendezvous_is_one_line(site: Site, wrong: str) -> None:
    end = site.run("--standalone", "--rdzv-conf", wrong, str(script(site.folder, "pass")))
    assert end.code == 2, end
    assert f"--rdzv-conf {wrong}: expected a number" in end.err
    assert "Traceback" not in end.err


def test_a_decision_timeout_that_is_not_below_the_join_timeout_is_refused(site: Site) -> None:
    job = script(site.folder, "pass")
    end = site.run(
        *("--rdzv-conf", "join_timeout=10", "--ft-attribution-decision-timeout", "10"), str(job)
    )
    assert end.code == 2
    assert "join timeout" in end.err
    assert site.cycles() == []
