"""What the service keeps, on SQLite and on PostgreSQL alike."""

import concurrent.futures
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.faults.corpus import CORPUS

from support.attribution_service import running_service
from support.services import requirements
from support.services.postgres import Postgres, start_postgres

if TYPE_CHECKING:  # 0.2 s in every worker that only collects
    from aorta.attribution.service.store import CycleKey, Store

pytestmark = pytest.mark.xdist_group("attrsvc")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    requirements.demand(requirements.POSTGRES)
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.sqlite'}"
    found: str = request.getfixturevalue("postgres").url
    return found


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """A job of its own for each test: they share one PostgreSQL."""
    return str(request.node.name)[:100]


def opened(url: str) -> "Store":
    from aorta.attribution.service.store import Store

    return Store(url)


def cycle_of(job: str, name: str) -> "CycleKey":
    from aorta.attribution.service.store import CycleKey

    return CycleKey(job, name)


def add(store: "Store", key: "CycleKey", *agents: str) -> None:
    for agent in agents:
        store.add_report(key, agent, json.dumps({"agent": agent})).result(30)


def test_a_report_is_kept_once_however_often_it_comes(url: str, job: str) -> None:
    key, store = cycle_of(job, "0"), opened(url)
    new = [store.add_report(key, each, json.dumps({"agent": each})).result(30) for each in "abab"]
    assert new == [True, True, False, False]
    kept = store.reported(key).result(30).reports
    assert [json.loads(body)["agent"] for body in kept] == ["a", "b"]
    store.close()


def test_the_first_decision_stands_whoever_comes_second(url: str, job: str) -> None:
    key, stores = cycle_of(job, "0"), [opened(url), opened(url)]
    add(stores[0], key, "a")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        said = list(
            pool.map(lambda n: stores[n % 2].decide(key, {"decision": n}).result(60), range(16))
        )
    assert all(answer == said[0] for answer in said)
    assert stores[1].answer(key).result(30) == said[0]
    for store in stores:
        store.close()


def test_what_is_undecided_is_found_again_by_a_successor(url: str, job: str) -> None:
    first = opened(url)
    for cycle in ("0", "1"):
        add(first, cycle_of(job, cycle), "a")
    first.decide(cycle_of(job, "0"), {"decision": "x"}).result(30)
    first.close()
    second = opened(url)
    open_cycles = set(second.undecided().result(30))
    assert cycle_of(job, "1") in open_cycles
    assert cycle_of(job, "0") not in open_cycles
    second.close()


def test_a_clock_that_is_set_back_does_not_reorder_a_jobs_cycles(
    url: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, keys = opened(url), [cycle_of(job, name) for name in ("z", "m", "a")]
    for key, now in zip(keys, (2_000.0, 1_000.0, 1_000.0), strict=True):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        add(store, key, "a")
        store.decide(key, {"decision": key.cycle_id}).result(30)
    before = [name for name, _ in store.reported(keys[2]).result(30).earlier]
    assert before == ["z", "m"]
    store.close()


def test_whoever_no_longer_waits_does_not_stop_the_store(url: str, job: str) -> None:
    store, key = opened(url), cycle_of(job, "0")
    for _ in range(200):
        store.add_report(key, "a", "{}").cancel()
    add(store, key, "b")
    assert '{"agent": "b"}' in store.reported(key).result(30).reports
    store.close()


def test_a_service_remembers_over_kill_9_and_answers_503_until_a_postgresql_that_went_is_back(
    postgres: Postgres,
) -> None:
    import psycopg

    body = {"job_id": "away", "agent": "a", "log_paths": [str(CORPUS / "sigkill")]}
    where = "/v1/cycles/away/0/decision?wait=60"
    with running_service(CORPUS, postgres.url) as service, service.client() as client:
        assert client.post("/v1/cycles", json={**body, "cycle_id": "0"}).status_code == 202
        first = client.get(where).json()
        assert first["status"] == "decided"
        service.kill()
    with (
        psycopg.connect(postgres.admin, autocommit=True) as admin,
        running_service(CORPUS, postgres.url) as service,
        service.client() as client,
    ):
        assert client.get(where).json() == first
        admin.execute("ALTER DATABASE attribution ALLOW_CONNECTIONS false")
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'attribution'"
        )
        refused = client.post("/v1/cycles", json={**body, "cycle_id": "1"})
        health = client.get("/healthz").json()["status"]
        known = client.get("/v1/cycles/away/0/decision").json()
        admin.execute("ALTER DATABASE attribution ALLOW_CONNECTIONS true")
        taken = client.post("/v1/cycles", json={**body, "cycle_id": "1"})
        second = client.get("/v1/cycles/away/1/decision?wait=60").json()
    assert (refused.status_code, refused.json()["error_code"]) == (503, "store_unavailable")
    assert health == "degraded"
    assert known == first
    assert (taken.status_code, second["status"]) == (202, "decided")
