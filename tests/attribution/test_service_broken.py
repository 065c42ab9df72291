"""The service as things go wrong around it: killed, out of disk, flooded, and lied to."""

import concurrent.futures
import gzip
import http.client
import json
import os
import resource
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from benchmarks.faults.corpus import CORPUS

from support.attribution_service import Service, running_service
from support.hung_mount import hung_mount
from support.waiting import patience, wait_until

pytestmark = pytest.mark.xdist_group("attrsvc_broken")  # one service for all its tests

SECRET = "No module named 'secret_4711'"


def report(job: str, agent: str, *paths: Path) -> dict[str, Any]:
    logs = [str(path) for path in paths]
    return {"job_id": job, "cycle_id": f"{job}:0", "agent": agent, "log_paths": logs}


def decision(service: Service, job: str, wait: float = 60) -> dict[str, Any]:
    with service.client() as client:
        answer = client.get(f"/v1/cycles/{job}/{job}:0/decision", params={"wait": wait})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def tell(service: Service, body: dict[str, Any]) -> httpx.Response:
    with service.client() as client:
        return client.post("/v1/cycles", json=body)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("broken")
    also = ("--allowed-root", str(CORPUS))
    with running_service(folder.parent, folder / "state.sqlite", *also) as service:
        yield service


@contextmanager
def full_disk(service: Service) -> Iterator[None]:
    """What it writes from here on finds no room."""
    limits = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, limits)


# ---- killed, and out of disk


def test_kill_9_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"
    acknowledged: list[str] = []
    with running_service(CORPUS, database, "--rate-limit", "0") as service:
        headers = JSON | {"Authorization": f"Bearer {service.token}"}

        def report_until_refused(connection: int) -> None:
            address = urlsplit(service.url)
            agent = http.client.HTTPConnection(
                address.hostname or "", address.port, timeout=patience()
            )
            with closing(agent):
                for number in range(10_000 // 8):
                    name = f"{connection}-{number}"
                    body = report(f"job-{number % 10}", name, CORPUS / "assertion")
                    try:
                        agent.request("POST", "/v1/cycles", json.dumps(body), headers)
                        answer = agent.getresponse()
                        answer.read()
                    except (OSError, http.client.HTTPException):
                        return
                    assert answer.status == 202
                    acknowledged.append(name)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            agents = [pool.submit(report_until_refused, number) for number in range(8)]
            wait_until(lambda: len(acknowledged) > 150)
            service.kill()
            for agent in agents:
                agent.result(patience())
    with running_service(CORPUS, database) as service:
        answers = [decision(service, f"job-{number}") for number in range(10)]
        again = [
            tell(service, report("job-0", name, CORPUS / "assertion"))
            for name in told_to(0, acknowledged)
        ]
    assert all(answer["decision"]["action"] == "RESTART" for answer in answers)
    assert all(answer.json()["duplicate"] for answer in again)
    with sqlite3.connect(database) as rows:
        kept = {
            json.loads(body)["agent"] for (body,) in rows.execute("SELECT body FROM aorta_reports")
        }
    rows.close()
    assert set(acknowledged) <= kept
    assert len(acknowledged) < 10_000  # it was killed in the middle


JSON = {"Content-Type": "application/json"}


def told_to(job: int, names: list[str]) -> list[str]:
    return [name for name in names if int(name.split("-")[1]) % 10 == job][:50]


def test_a_full_disk_is_a_503_and_over_when_there_is_room_again(
    shared: Service, tmp_path: Path
) -> None:
    assert tell(shared, report("before", "a", CORPUS / "assertion")).status_code == 202
    before = decision(shared, "before")
    with full_disk(shared):
        refused = tell(shared, report("full", "a", CORPUS / "assertion"))
        with shared.client() as client:
            health = client.get("/healthz").json()
        assert decision(shared, "before") == before  # what is known is still told
    taken = tell(shared, report("full", "a", CORPUS / "assertion"))
    after = decision(shared, "full")
    assert (refused.status_code, refused.json()["error_code"]) == (503, "store_unavailable")
    assert refused.headers["retry-after"] == "1"
    assert str(tmp_path.parent) not in refused.text
    assert health["status"] == "degraded"
    assert (taken.status_code, after["status"]) == (202, "decided")


def test_a_decision_that_cannot_be_kept_is_given_when_it_can(shared: Service) -> None:
    """The disk fills between the report and the decision: nobody is told what a restart would
    forget.
    """
    wait_until(shared.workers, "the server that analyses are forked from")
    (worker,) = shared.workers()
    os.kill(worker, signal.SIGSTOP)
    assert tell(shared, report("late", "a", CORPUS / "assertion")).status_code == 202
    with full_disk(shared):
        os.kill(worker, signal.SIGCONT)
        assert decision(shared, "late", wait=3)["status"] == "pending"
    assert decision(shared, "late")["status"] == "decided"


# ---- flooded and lied to


def test_a_body_of_a_hundred_megabytes_is_refused_and_not_held(shared: Service) -> None:
    before = peak_memory(shared)
    block = b" " * (1 << 20)
    with shared.client() as client:
        for path in ("/v1/cycles", "/logs"):
            try:
                answer = client.post(path, content=iter([block] * 100), headers=JSON)
            except httpx.TransportError:
                continue  # it hung up on us in the middle of the body
            assert (answer.status_code, answer.json()["error_code"]) == (411, "length_required")
        assert (
            client.post("/v1/cycles", content=b" " * (100 << 20), headers=JSON).status_code == 413
        )
        assert client.get("/healthz").status_code == 200
    assert peak_memory(shared) - before < 60 << 20


def peak_memory(service: Service) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10
    )


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe\x00",
        b"{",
        b"null",
        b"[" * 100_000,
        b'{"job_id":' * 10_000,
        b'{"job_id":"a","cycle_id":"a:0","agent":"\\ud800","log_paths":[]}',
        b'{"job_id":"a","cycle_id":"a:0","agent":"a","failures":[{"rank":1e999}]}',
    ],
    ids=["nothing", "bytes", "cut", "null", "nested", "deep", "surrogate", "infinity"],
)
def test_garbage_is_refused_and_the_next_report_is_taken(shared: Service, garbage: bytes) -> None:
    with shared.client() as client:
        for path in ("/v1/cycles", "/logs"):
            assert client.post(path, content=garbage, headers=JSON).status_code in {400, 422}
        other = client.post("/v1/cycles", content=b"{}", headers={"Content-Type": "text/plain"})
        assert other.status_code == 422
    assert tell(shared, report("sane", "a")).status_code == 202


# ---- files that are not what they were


def write_secret(folder: Path) -> Path:
    secret = folder / "secret.log"
    text = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
    secret.write_text(f"{text}ModuleNotFoundError: {SECRET}\n")
    return secret


def test_a_link_among_what_is_reported_is_not_followed(shared: Service, tmp_path: Path) -> None:
    secret, logs = write_secret(tmp_path), tmp_path / "logs"
    (logs / "cycle").mkdir(parents=True)
    (logs / "cycle" / "rank_0.err").symlink_to(secret)
    os.mkfifo(logs / "cycle" / "rank_1.err")
    (logs / "out").symlink_to(tmp_path)
    links = (logs / "cycle" / "rank_0.err", logs / "out" / secret.name)
    assert tell(shared, report("link", "a", logs / "cycle", *links)).status_code == 202
    answer = decision(shared, "link")
    assert answer["status"] == "decided"
    assert SECRET not in json.dumps(answer)


def test_a_log_that_becomes_a_link_after_it_was_admitted_is_not_read(
    shared: Service, tmp_path: Path
) -> None:
    secret, logs = write_secret(tmp_path), tmp_path / "logs"
    logs.mkdir()
    log = logs / "job_cycle0.log"
    log.write_text("starting\n")
    with shared.client() as client:
        told = client.post("/logs", json={"log_path": str(log), "analysis_intent": "terminal"})
        log.unlink()
        log.symlink_to(secret)  # the service waits for the log to be still, and looks only then
        answer = client.get("/logs", params={"log_path": str(log)}).json()
    assert told.status_code == 200
    assert answer["status"] == "completed"
    assert SECRET not in json.dumps(answer)


def test_a_directory_without_logs_and_a_log_that_is_gone_are_decided_too(
    shared: Service, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    body = report("nothing", "a", tmp_path / "empty", tmp_path / "gone.log")
    assert tell(shared, body).status_code == 202
    assert decision(shared, "nothing")["decision"]["action"] == "UNKNOWN"


def test_an_endless_log_delays_nobody_elses_decision(tmp_path: Path) -> None:
    endless = tmp_path / "endless.log.gz"
    endless.write_bytes(gzip.compress(b"all is well\n" * 1_000_000) * 1_000)
    quick = tmp_path / "quick.log"
    quick.write_text(write_secret(tmp_path).read_text())
    with running_service(tmp_path, tmp_path / "state.sqlite") as service:
        tell(service, report("endless", "a", endless))
        time.sleep(0.5)
        for number in range(3):
            tell(service, report(f"quick-{number}", "a", quick))
        answers = [decision(service, f"quick-{number}") for number in range(3)]
        assert decision(service, "endless", wait=0)["status"] == "pending"
    assert [answer["decision"]["action"] for answer in answers] == ["STOP"] * 3


def test_a_mount_that_hangs_holds_up_nobody_but_its_own_job(tmp_path: Path) -> None:
    """Nobody else's report, decision, health or metrics; and not the end, though a worker cannot be
    killed.
    """
    quick = write_secret(tmp_path)
    with ExitStack() as open_now:
        service = open_now.enter_context(running_service(tmp_path, tmp_path / "state.sqlite"))
        hung = open_now.enter_context(hung_mount(tmp_path / "hung"))
        ends = [{"rank": 0, "exit_code": 1, "error_file": str(hung / "error.json")}]
        tails = [{"rank": 0, "text": quick.read_text()}]
        for number in range(4):
            body = report(f"hung-{number}", "a", hung / f"{number}" / "rank_0.err", hung)
            assert tell(service, body | {"failures": ends, "tails": tails}).status_code == 202
        with service.client() as client:
            peer = {"log_path": str(hung / "peer.log"), "analysis_intent": "terminal"}
            assert client.post("/logs", json=peer).status_code == 200
            assert client.get("/healthz").json()["status"] == "ok"
        tell(service, report("well", "a", quick))
        assert decision(service, "well")["decision"]["action"] == "STOP"
        answer = decision(service, "hung-3")
        assert answer["finding"]["class"] == "import_error"
        assert "storage" in {advice["kind"] for advice in answer["decision"]["advice"]}
        service.process.terminate()
        assert service.process.wait(patience(20)) == 0
