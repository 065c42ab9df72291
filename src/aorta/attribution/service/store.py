"""What survives a restart or `kill -9`: reports, decisions, and which log belongs to which cycle.

One thread owns the database and commits what has queued up in one transaction, so that a thousand agents reporting at once
cost a few commits. The statements are plain SQL for SQLite and PostgreSQL alike. A database that goes away is an error to
whoever asks meanwhile, and is there again when it is there again.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from aorta.core.errors import InfrastructureError

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

_LARGEST_BATCH = 256
_METADATA = sa.MetaData()
_CYCLES = sa.Table(
    "aorta_cycles",
    _METADATA,
    sa.Column("job_id", sa.String(200), primary_key=True),
    sa.Column("cycle_id", sa.String(200), primary_key=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("decided", sa.Float),
    sa.Column("answer", sa.Text),
)
_REPORTS = sa.Table(
    "aorta_reports",
    _METADATA,
    sa.Column("job_id", sa.String(200), primary_key=True),
    sa.Column("cycle_id", sa.String(200), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("received", sa.Float, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)
_LOGS = sa.Table(
    "aorta_logs",
    _METADATA,
    sa.Column("path", sa.String(4096), primary_key=True),
    sa.Column("job_id", sa.String(200), nullable=False),
    sa.Column("cycle_id", sa.String(200), nullable=False),
)


# One syntax for both databases, and for a row that another service put there this moment. A job's later cycle is the later
# one though the clock was set back between the two.
_NEW_CYCLE = sa.text(
    "INSERT INTO aorta_cycles (job_id, cycle_id, created) VALUES (:job_id, :cycle_id,"
    " (SELECT CASE WHEN MAX(created) >= :now THEN MAX(created) + 0.00001 ELSE :now END"
    "  FROM aorta_cycles WHERE job_id = CAST(:job_id AS VARCHAR(200)))) ON CONFLICT DO NOTHING"
)
_NEW_REPORT = sa.text(
    "INSERT INTO aorta_reports (job_id, cycle_id, digest, received, body)"
    " VALUES (:job_id, :cycle_id, :digest, :now, :body) ON CONFLICT DO NOTHING"
)
_NEW_LOG = sa.text(
    "INSERT INTO aorta_logs (path, job_id, cycle_id) VALUES (:path, :job_id, :cycle_id)"
    " ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True)
class CycleKey:
    job_id: str
    cycle_id: str


@dataclass(frozen=True)
class Report:
    """What one agent said, with the digest that makes it itself."""

    key: CycleKey
    digest: str
    body: str  # JSON


@dataclass(frozen=True)
class CycleRow:
    key: CycleKey
    created: float
    decided: float | None
    answer: dict[str, Any] | None  # {"finding": ..., "decision": ...}, once and for all


class Store:
    def __init__(self, url: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Work[Any], Future[Any]] | None] = queue.SimpleQueue()
        self.refuses = False  # whether the last thing asked of the database failed
        try:
            self._engine = sa.create_engine(
                url, pool_pre_ping=True, connect_args=_connect_arguments(url)
            )
            if self._engine.dialect.name == "sqlite":
                sa.event.listen(self._engine, "connect", _prepare_sqlite)
            _METADATA.create_all(self._engine)
        except (SQLAlchemyError, ImportError) as wrong:
            kind = type(wrong).__name__  # its message may hold the password of the URL
            raise InfrastructureError(
                f"the database cannot be opened ({kind}); check --db"
            ) from None
        self._thread = threading.Thread(target=self._run, name="attribution-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everything handed in is committed first."""
        self._queue.put(None)
        self._thread.join()
        self._engine.dispose()

    # Each method returns a future: the service awaits it, tests call .result().

    def add_reports(self, reports: Sequence[Report]) -> Future[None]:
        """Keep what agents reported; what is there already stays as it is."""
        return self._submit(lambda connection: _add_reports(connection, reports))

    def digests(self, key: CycleKey) -> Future[set[str]]:
        """Which reports of a cycle are there."""
        return self._submit(lambda connection: _digests(connection, key))

    def reports(self, key: CycleKey) -> Future[list[str]]:
        """The bodies of a cycle's reports, in the order they came."""
        return self._submit(lambda connection: _reports(connection, key))

    def decide(self, key: CycleKey, answer: dict[str, Any]) -> Future[dict[str, Any]]:
        """Set the answer unless there is one; either way return the one that stands."""
        return self._submit(lambda connection: _decide(connection, key, answer))

    def cycle(self, key: CycleKey) -> Future[CycleRow | None]:
        return self._submit(lambda connection: _cycle(connection, key))

    def cycles_of(self, job_id: str) -> Future[list[CycleRow]]:
        """Oldest first."""
        where = _CYCLES.c.job_id == job_id
        return self._submit(lambda connection: _rows(connection, where))

    def answers_before(self, key: CycleKey) -> Future[list[tuple[str, str]]]:
        """The name and the answer, as JSON, of each decided cycle of the job before this one, oldest first."""
        return self._submit(lambda connection: _answers_before(connection, key))

    def undecided(self) -> Future[list[CycleKey]]:
        return self._submit(_undecided)

    def jobs(self, limit: int, after: str) -> Future[list[dict[str, Any]]]:
        return self._submit(lambda connection: _jobs(connection, limit, after))

    def add_log(self, path: str, key: CycleKey) -> Future[CycleKey]:
        """Remember whose log this is; the first owner stays. Returns the owner."""
        return self._submit(lambda connection: _add_log(connection, path, key))

    def owner_of(self, path: str) -> Future[CycleKey | None]:
        return self._submit(lambda connection: _owner(connection, path))

    def _submit(self, work: Work[T]) -> Future[T]:
        future: Future[T] = Future()
        self._queue.put((work, future))
        return future

    def _run(self) -> None:
        while True:
            batch, closing = self._batch()
            if batch and not self._commit(batch) and len(batch) > 1:
                for pair in batch:
                    self._commit([pair])
            if closing:
                return

    def _batch(self) -> tuple[list[tuple[Work[Any], Future[Any]]], bool]:
        """What has queued up, without what its caller no longer waits for; and whether it is the last."""
        batch: list[tuple[Work[Any], Future[Any]]] = []
        asked = self._queue.get()
        while asked is not None:
            if asked[1].set_running_or_notify_cancel():
                batch.append(asked)
            if len(batch) == _LARGEST_BATCH:
                return batch, False
            try:
                asked = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: Sequence[tuple[Work[Any], Future[Any]]]) -> bool:
        """Run and commit all or none. A batch of one answers its caller in every case."""
        try:
            with self._engine.begin() as connection:
                results = [work(connection) for work, _ in batch]
        except Exception as wrong:  # noqa: BLE001  # the caller hears of it, and the thread must outlive it
            if len(batch) == 1:
                self.refuses = True
                batch[0][1].set_exception(wrong)
            return False
        self.refuses = False
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
        return True


def _connect_arguments(url: str) -> dict[str, Any]:
    """A PostgreSQL that fell silent is given up after seconds, not after the minutes TCP would wait."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "postgresql":
        return {}
    patience = {"connect_timeout": 5, "tcp_user_timeout": 10_000}
    return {name: value for name, value in patience.items() if name not in parsed.query}


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _same_cycle(table: sa.Table, key: CycleKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.job_id == key.job_id, table.c.cycle_id == key.cycle_id)


def _add_reports(connection: sa.Connection, reports: Sequence[Report]) -> None:
    now = time.time()
    rows = [
        {
            "job_id": report.key.job_id,
            "cycle_id": report.key.cycle_id,
            "digest": report.digest,
            "body": report.body,
            "now": now,
        }
        for report in reports
    ]
    connection.execute(
        _NEW_CYCLE, list({(row["job_id"], row["cycle_id"]): row for row in rows}.values())
    )
    connection.execute(_NEW_REPORT, rows)


def _digests(connection: sa.Connection, key: CycleKey) -> set[str]:
    query = sa.select(_REPORTS.c.digest).where(_same_cycle(_REPORTS, key))
    return set(connection.execute(query).scalars())


def _reports(connection: sa.Connection, key: CycleKey) -> list[str]:
    query = sa.select(_REPORTS.c.body).where(_same_cycle(_REPORTS, key))
    rows = connection.execute(query.order_by(_REPORTS.c.received, _REPORTS.c.digest))
    return list(rows.scalars())


def _answers_before(connection: sa.Connection, key: CycleKey) -> list[tuple[str, str]]:
    own = sa.select(_CYCLES.c.created).where(_same_cycle(_CYCLES, key)).scalar_subquery()
    query = sa.select(_CYCLES.c.cycle_id, _CYCLES.c.answer).where(
        _CYCLES.c.job_id == key.job_id, _CYCLES.c.answer.is_not(None), _CYCLES.c.created < own
    )
    rows = connection.execute(query.order_by(_CYCLES.c.created))
    return [(row.cycle_id, row.answer) for row in rows]


def _undecided(connection: sa.Connection) -> list[CycleKey]:
    query = sa.select(_CYCLES.c.job_id, _CYCLES.c.cycle_id).where(_CYCLES.c.decided.is_(None))
    rows = connection.execute(query.order_by(_CYCLES.c.created))
    return [CycleKey(row.job_id, row.cycle_id) for row in rows]


def _decide(connection: sa.Connection, key: CycleKey, answer: dict[str, Any]) -> dict[str, Any]:
    undecided = sa.and_(_same_cycle(_CYCLES, key), _CYCLES.c.decided.is_(None))
    values = {"decided": time.time(), "answer": json.dumps(answer)}
    connection.execute(sa.update(_CYCLES).where(undecided).values(values))
    row = _cycle(connection, key)
    return row.answer if row is not None and row.answer is not None else answer


def _cycle(connection: sa.Connection, key: CycleKey) -> CycleRow | None:
    return next(iter(_rows(connection, _same_cycle(_CYCLES, key))), None)


def _rows(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[CycleRow]:
    query = sa.select(_CYCLES).where(where).order_by(_CYCLES.c.created, _CYCLES.c.cycle_id)
    return [
        CycleRow(
            CycleKey(row.job_id, row.cycle_id),
            row.created,
            row.decided,
            None if row.answer is None else json.loads(row.answer),
        )
        for row in connection.execute(query)
    ]


def _jobs(connection: sa.Connection, limit: int, after: str) -> list[dict[str, Any]]:
    query = (
        sa.select(
            _CYCLES.c.job_id,
            sa.func.count().label("cycles"),
            sa.func.count(_CYCLES.c.decided).label("decided"),
            sa.func.max(_CYCLES.c.created).label("latest"),
        )
        .where(_CYCLES.c.job_id > after)
        .group_by(_CYCLES.c.job_id)
        .order_by(_CYCLES.c.job_id)
        .limit(limit)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def _add_log(connection: sa.Connection, path: str, key: CycleKey) -> CycleKey:
    owner = _owner(connection, path)
    if owner is not None:
        return owner
    row = {"path": path, "job_id": key.job_id, "cycle_id": key.cycle_id}
    connection.execute(_NEW_LOG, row)
    return _owner(connection, path) or key


def _owner(connection: sa.Connection, path: str) -> CycleKey | None:
    row = connection.execute(sa.select(_LOGS).where(_LOGS.c.path == path)).first()
    return None if row is None else CycleKey(row.job_id, row.cycle_id)
