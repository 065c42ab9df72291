"""The service as agents and leaders meet it: a real process, a real socket, real logs."""

import concurrent.futures
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.faults.corpus import CORPUS

from support.aorta_cli import aorta
from support.attribution_service import Service, running_service
from support.waiting import eventually, patience, wait_until

pytestmark = pytest.mark.xdist_group(
    "attrsvc"
)  # one service for all its tests, and one worker loads what services need


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    database = tmp_path_factory.mktemp("service") / "state.sqlite"
    with running_service(CORPUS, database) as running:
        yield running


def report(job: str, case: str, *, cycle: str = "0", agent: str = "agent-0") -> dict[str, Any]:
    failures = json.loads((CORPUS / case / "failures.json").read_text())
    return {
        "job_id": job,
        "cycle_id": f"{job}:{cycle}",
        "agent": agent,
        "log_paths": [str(CORPUS / case)],
        "failures": failures,
    }


def decision(client: httpx.Client, body: dict[str, Any], wait: float = 60) -> dict[str, Any]:
    where = f"/v1/cycles/{body['job_id']}/{body['cycle_id']}/decision"
    answer = client.get(where, params={"wait": wait})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_report_is_taken_at_once_and_its_decision_is_long_polled(service: Service) -> None:
    with service.client() as client:
        body = report("first", "import_error")
        taken = client.post("/v1/cycles", json=body)
        assert (taken.status_code, taken.json()["duplicate"]) == (202, False)
        answer = decision(client, body)
    assert answer["status"] == "decided"
    assert answer["decision"]["action"] == "STOP"
    assert answer["finding"]["class"] == "import_error"


@pytest.mark.parametrize(
    ("started", "ended"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09.250+00:00"),  # as cycle_info.json says it
        ("2026-01-01T02:00:00+02:00", 1_767_225_609.25),
        (1_767_225_600, 1_767_225_609.25),
    ],
)
def test_when_a_cycle_began_and_ended_is_told_in_seconds_or_as_cycle_info_writes_it(
    service: Service, started: object, ended: object
) -> None:
    body = report("times", "import_error", cycle=str(len(str(started))))
    with service.client() as client:
        taken = client.post("/v1/cycles", json={**body, "started": started, "ended": ended})
        assert taken.status_code == 202, taken.text
        assert decision(client, body)["finding"]["lived_sec"] == 9.25


@pytest.mark.parametrize(
    "moment", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "1767225600", True, -1, [], {}]
)
def test_what_is_no_moment_is_refused(service: Service, moment: object) -> None:
    body = {**report("times", "import_error", cycle="wrong"), "started": moment, "ended": 9}
    with service.client() as client:
        assert client.post("/v1/cycles", json=body).status_code == 422


def test_a_leader_may_ask_before_anybody_has_reported(service: Service) -> None:
    body = report("early", "sigkill")
    with service.client() as client, concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(decision, client, body)
        time.sleep(0.3)
        client.post("/v1/cycles", json=body)
        assert asked.result(patience())["finding"]["class"] == "killed"


def test_many_agents_of_one_cycle_are_one_analysis_and_one_answer(service: Service) -> None:
    bodies = [
        report("many", "disk_full_write", agent=f"agent-{n}") | {"agents_expected": 20}
        for n in range(20)
    ]
    with service.client() as client, concurrent.futures.ThreadPoolExecutor(20) as pool:
        before = metric(client, "aorta_analyses_total")
        taken = list(pool.map(lambda body: client.post("/v1/cycles", json=body), bodies))
        assert {answer.status_code for answer in taken} == {202}
        answers = list(pool.map(lambda body: decision(client, body), bodies))
        assert all(answer == answers[0] for answer in answers)
        assert metric(client, "aorta_analyses_total") - before <= 2


def test_repeating_a_report_changes_nothing(service: Service) -> None:
    body = report("twice", "segfault")
    with service.client() as client:
        client.post("/v1/cycles", json=body)
        first = decision(client, body)
        again = client.post("/v1/cycles", json=body).json()
        assert (again["duplicate"], again["status"]) == (True, "decided")
        assert decision(client, body) == first


def test_evidence_that_comes_late_does_not_change_a_decision(service: Service) -> None:
    body = report("late", "sigkill")
    with service.client() as client:
        client.post("/v1/cycles", json=body)
        first = decision(client, body)
        late = report("late", "import_error", agent="agent-9")
        assert client.post("/v1/cycles", json=late).json()["status"] == "decided"
        assert decision(client, body) == first


def test_logs_may_be_sent_instead_of_named(service: Service) -> None:
    text = (CORPUS / "missing_file" / "rank_0.err").read_text()
    body = report("tails", "missing_file") | {"log_paths": [], "tails": [{"rank": 0, "text": text}]}
    with service.client() as client:
        client.post("/v1/cycles", json=body)
        assert decision(client, body)["finding"]["class"] == "missing_file"


def test_the_history_of_a_job_stops_what_comes_back_without_progress(service: Service) -> None:
    with service.client() as client:
        actions = []
        for cycle in range(2):
            body = report("again", "assertion", cycle=str(cycle))
            client.post("/v1/cycles", json=body)
            actions.append(decision(client, body)["decision"]["action"])
    assert actions == ["RESTART", "STOP"]


def test_a_peers_launcher_finds_the_wire_it_knows(service: Service) -> None:
    log = str(CORPUS / "shape_matmul" / "rank_0.err")
    submission = {"log_path": log, "job_id": "peer", "cycle_id": 3, "analysis_intent": "terminal"}
    with service.client() as client:
        told = client.post("/logs", json=submission)
        assert (told.status_code, told.json()["submitted"]) == (200, True)
        assert client.post("/logs", json=submission).status_code == 200
        result = client.get("/logs", params={"log_path": log, "wait": True}).json()
        assert result["status"] == "completed"
        assert result["recommendation"]["action"] == "STOP"
        assert result["result"]["finding"]["class"] == "shape_mismatch"
        assert client.get("/healthz").json()["status"] == "ok"


def test_a_tracked_log_is_analysed_when_it_is_asked_for(service: Service) -> None:
    log = str(CORPUS / "shape_broadcast" / "rank_1.err")
    with service.client() as client:
        told = client.post("/logs", json={"log_path": log, "analysis_intent": "track_only"})
        assert told.json()["mode"] == "pending"
        result = client.get("/logs", params={"log_path": log, "wait": "true"}).json()
        assert result["recommendation"]["action"] == "STOP"


@pytest.mark.parametrize("path", ["/etc/passwd", "{root}/../test_service.py", "relative.log"])
def test_paths_outside_the_roots_are_refused_without_being_repeated(
    service: Service, path: str
) -> None:
    path = path.format(root=CORPUS)
    with service.client() as client:
        body = report("jail", "import_error") | {"log_paths": [path]}
        answers = [
            client.post("/v1/cycles", json=body),
            client.post("/logs", json={"log_path": path}),
            client.get("/logs", params={"log_path": path}),
        ]
    assert all(answer.status_code in {400, 403, 422} for answer in answers)
    assert not any(path in answer.text for answer in answers)


def test_malformed_bodies_are_refused_without_being_repeated(service: Service) -> None:
    with service.client() as client:
        answer = client.post("/v1/cycles", json={"job_id": "sesame-4711 \n", "secret": "sesame"})
        assert answer.status_code == 422
        assert "sesame-4711" not in answer.text
        assert client.post("/v1/cycles", content=b"{" * 9_000_000).status_code == 413


def test_a_cycle_nobody_reported_is_pending(service: Service) -> None:
    with service.client() as client:
        nobody = {"status": "pending", "decision": None, "finding": None}
        assert client.get("/v1/cycles/no/no/decision").json() == nobody


def test_without_the_token_nothing_but_health_is_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct horse battery\n")
    options = ("--token-file", str(token))
    with running_service(CORPUS, tmp_path / "s.sqlite", *options) as service:
        with service.client() as stranger:
            assert stranger.get("/healthz").status_code == 200
            refused = [stranger.get(path) for path in ("/metrics", "/docs", "/logs")]
        with service.client("correct horse battery") as friend:
            assert friend.get("/metrics").status_code == 200
        with service.client("wrong") as stranger:
            refused.append(stranger.get("/metrics"))
    assert {answer.status_code for answer in refused} == {401}


def test_decisions_and_counts_survive_kill_9_and_what_was_undecided_is_taken_up(
    tmp_path: Path,
) -> None:
    database = tmp_path / "state.sqlite"
    with running_service(CORPUS, database) as service, service.client() as client:
        body = report("survivor", "assertion")
        client.post("/v1/cycles", json=body)
        first = decision(client, body)
        unfinished = report("survivor", "assertion", cycle="1")
        assert client.post("/v1/cycles", json=unfinished).status_code == 202
        workers = service.children()
        service.kill()
        assert gone(workers)
    with running_service(CORPUS, database) as service, service.client() as client:
        assert decision(client, body) == first
        assert decision(client, unfinished)["decision"]["action"] == "STOP"


def test_workers_that_are_still_starting_do_not_outlive_a_killed_service(tmp_path: Path) -> None:
    with running_service(CORPUS, tmp_path / "state.sqlite") as service:
        wait_until(service.children, "a worker")
        workers = service.children()
        service.kill()
        assert gone(workers)


def test_a_worker_killed_in_the_middle_costs_a_retry_not_the_answer(service: Service) -> None:
    body = report("worker", "nan_check")
    with service.client() as client:
        for worker in service.workers():
            with suppress(ProcessLookupError):
                os.kill(worker, 9)
        client.post("/v1/cycles", json=body)
        assert decision(client, body)["finding"]["class"] == "nan"


def test_a_taken_port_and_a_bad_database_are_one_line_and_code_5(
    service: Service, tmp_path: Path
) -> None:
    port = service.url.rsplit(":", 1)[1]
    database = "postgresql://me:sesame-4711@127.0.0.1:1/x"
    for options in (
        ["--port", port, "--db", str(tmp_path / "x")],
        ["--port", "0", "--db", database],
    ):
        done = aorta("attrsvc", "--allowed-root", tmp_path, *options)
        assert done.exit_code == 5
        assert "Traceback" not in done.stderr
        assert "sesame" not in done.stderr


def metric(client: httpx.Client, name: str) -> float:
    rows = client.get("/metrics").text.splitlines()
    return next(float(row.split()[-1]) for row in rows if row.startswith(f"{name} "))


def gone(processes: list[int]) -> bool:
    return eventually(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in processes))
