"""What happens to processes: none is left behind, whoever dies and however."""

import signal
import socket
from pathlib import Path

from support.launching import Site, script
from support.processes import catches, is_running
from support.waiting import wait_until

WAITS = """
    open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
    time.sleep(600)
"""
STUBBORN = """
    import signal, subprocess
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(f"child_{rank}_{attempt}", "w").write(str(child.pid))
    open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
    time.sleep(600)
"""
NO_OPINION = ("--ft-attribution-dry-run", "--ft-max-no-progress-cycles", "0")


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def pids(folder: Path) -> list[int]:
    texts = (path.read_text() for path in (*folder.glob("pid_*"), *folder.glob("child_*")))
    return [int(text) for text in texts if text]


def patient(seconds: int) -> tuple[str, ...]:
    """How long workers that refuse to end are waited for; a torch before 2.12 waits for 30 s."""
    from torch.distributed.run import get_args_parser

    known = "--shutdown-timeout" in get_args_parser().format_help()
    return ("--shutdown-timeout", str(seconds)) if known else ()


def test_ctrl_c_ends_with_130_and_leaves_no_process_even_where_workers_refuse(site: Site) -> None:
    job = script(site.folder, STUBBORN)
    agent = site.start("--nproc-per-node", "2", *patient(2), str(job))
    wait_until(lambda: len(pids(site.folder)) == 4)
    agent.signal(signal.SIGINT)
    assert agent.wait().code == 130
    wait_until(lambda: not any(map(is_running, pids(site.folder))))


def test_sigterm_ends_with_143_and_a_second_signal_does_not_leave_workers_behind(
    site: Site,
) -> None:
    job = script(site.folder, STUBBORN)
    agent = site.start("--nproc-per-node", "1", *patient(600), str(job))
    wait_until(lambda: len(pids(site.folder)) == 2)
    agent.signal(signal.SIGTERM)
    wait_until(lambda: "closing signal" in agent.err())
    agent.signal(signal.SIGTERM)
    assert agent.wait().code == 143
    wait_until(lambda: not any(map(is_running, pids(site.folder))))


def test_ctrl_c_while_waiting_for_other_nodes_is_heard_too(site: Site) -> None:
    job = script(site.folder, WAITS)
    agent = site.start_node(0, str(job))
    wait_until(lambda: is_listening(site.port))
    wait_until(lambda: catches(agent.pid, signal.SIGHUP), "a handler for every signal")
    agent.signal(signal.SIGINT)
    end = agent.wait()
    assert end.code == 130, end
    assert "stopped by SIGINT" in end.err
    assert site.cycles() == []


def test_workers_die_with_an_agent_that_is_killed_outright(site: Site) -> None:
    job = script(site.folder, WAITS)
    agent = site.start("--nproc-per-node", "2", str(job))
    wait_until(lambda: len(pids(site.folder)) == 2)
    agent.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids(site.folder))))


def test_what_a_failed_rank_started_is_gone_before_the_next_cycle(site: Site) -> None:
    job = script(
        site.folder,
        """
        import subprocess
        if attempt == 0:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open("child_0_0", "w").write(str(child.pid))
            sys.exit(9)
        try:
            state = open(f"/proc/{open('child_0_0').read()}/stat").read().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            state = "gone"
        print("left over:", state not in ("Z", "gone"))
        """,
    )
    end = site.run("--max-restarts", "1", *NO_OPINION, str(job))
    assert end.code == 0, end
    assert "left over: False" in end.out


def test_when_the_leader_is_killed_the_others_go_on_without_it(site: Site) -> None:
    job = script(
        site.folder,
        """
        open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
        if os.environ["WORLD_SIZE"] == "2":
            time.sleep(600)
        """,
    )
    how = ("--max-restarts", "2", *NO_OPINION, str(job))
    leader = site.start_node(1, *how, nodes="1:2")  # ranks follow process ids
    host = site.start_node(0, *how, nodes="1:2")
    wait_until(lambda: len(pids(site.folder)) == 2)
    leader.signal(signal.SIGKILL)
    end = host.wait()
    assert end.code == 0, end
    assert "the agent on 127.0.0.1 was lost" in end.err
    assert len(site.cycle(1)["nodes"]) == 1
    assert not any(map(is_running, pids(site.folder)))


def test_when_the_host_of_the_store_is_killed_the_others_end_clearly(site: Site) -> None:
    job = script(site.folder, WAITS)
    host = site.start_node(0, "--max-restarts", "2", str(job))
    other = site.start_node(1, "--max-restarts", "2", str(job))
    wait_until(lambda: len(pids(site.folder)) == 2)
    host.signal(signal.SIGKILL)
    end = other.wait()
    assert end.code == 5, end
    assert "rendezvous store" in end.err
    assert "Traceback" not in end.err
    wait_until(lambda: not any(map(is_running, pids(site.folder))))


def test_an_agent_that_is_stopped_lets_the_others_restart_at_once(site: Site) -> None:
    job = script(
        site.folder,
        """
        open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
        if os.environ["WORLD_SIZE"] == "2":
            time.sleep(600)
        """,
    )
    how = ("--max-restarts", "2", *NO_OPINION, str(job))
    slow_to_miss = "keep_alive_interval=300"
    host = site.start_node(0, *how, nodes="1:2", conf=slow_to_miss)
    other = site.start_node(1, *how, nodes="1:2", conf=slow_to_miss)
    wait_until(lambda: len(pids(site.folder)) == 2)
    other.signal(signal.SIGTERM)
    assert other.wait().code == 143
    end = host.wait()
    assert end.code == 0, end
    assert "was stopped by SIGTERM" in end.err


def test_twenty_five_restarts_in_a_row_leak_nothing(site: Site) -> None:
    job = site.folder / "job.sh"
    job.write_text(
        """
        read children < /proc/$PPID/task/$PPID/children
        set -- /proc/$PPID/fd/*; files=$#
        set -- /proc/$PPID/task/*; threads=$#
        set -- $children
        echo holds $files $threads $#
        echo step $((2 * TORCHELASTIC_RESTART_COUNT)) loss 0.2
        echo step $((2 * TORCHELASTIC_RESTART_COUNT + 1)) loss 0.1
        test $TORCHELASTIC_RESTART_COUNT = 25 || exit 3
        """
    )
    how = ("--max-restarts", "25", "--monitor-interval", "0.05", "--no-python")
    end = site.run(*how, "sh", str(job))
    assert end.code == 0, end
    holds = [tuple(map(int, line.split()[1:])) for line in end.out.splitlines() if "holds" in line]
    assert len(holds) == 26
    early, late = holds[5], holds[-1]
    assert late[0] <= early[0] + 3, f"open files: {holds}"
    assert late[1] <= early[1] + 3, f"threads: {holds}"
    assert {children for _, _, children in holds} == {1}


def test_a_garbage_error_file_and_undecodable_output_do_not_upset_the_agent(site: Site) -> None:
    job = script(
        site.folder,
        """
        open(os.environ["TORCHELASTIC_ERROR_FILE"], "wb").write(b"\\xff{not json")
        os.write(1, bytes(range(256)))
        sys.exit(0 if attempt else 3)
        """,
    )
    end = site.run("--max-restarts", "1", *NO_OPINION, str(job))
    assert end.code == 0, end
    assert "reported of its failure cannot be read" in end.err


def test_a_command_that_does_not_exist_fails_in_one_cycle_with_a_clear_line(site: Site) -> None:
    end = site.run("--no-python", "--max-restarts", "0", "no-such-program")
    assert end.code in {1, 93}, end
    assert "cannot run no-such-program" in end.err


def test_records_that_cannot_be_written_do_not_end_the_job(site: Site) -> None:
    job = script(
        site.folder,
        """
        info = f"logs/cycle_{attempt}/cycle_info.json"
        os.remove(info)
        os.makedirs(os.path.join(info, "in the way"))
        sys.exit(3 if attempt == 0 else 0)
        """,
    )
    end = site.run("--max-restarts", "1", *NO_OPINION, str(job))
    assert end.code == 0, end
    assert "could not be written" in end.err


def test_a_log_directory_that_cannot_be_made_is_one_line_not_a_traceback(site: Site) -> None:
    job = script(site.folder, "pass")
    end = site.run("--log-dir", "/dev/full/logs", str(job))
    assert end.code == 2, end
    assert "cannot be made" in end.err
    assert "Traceback" not in end.err
