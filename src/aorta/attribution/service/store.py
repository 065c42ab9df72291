"""What survives a restart or `kill -9`: reports and decisions, in SQLite or PostgreSQL.

One thread owns the database: each call is a transaction whose future is done once it is committed.
While the database is away, requests fail; they work again once it is back.
"""

import functools
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from aorta.core.errors import InfrastructureError

P = ParamSpec("P")
T = TypeVar("T")
Answer = dict[str, Any]

_LAST_COMMIT = 10.0  # seconds

METADATA = sa.MetaData()
sa.Table(
    "aorta_cycles",
    METADATA,
    sa.Column("job_id", sa.String(200), primary_key=True),
    sa.Column("cycle_id", sa.String(200), primary_key=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("decided", sa.Float),
    sa.Column("answer", sa.Text),
)
sa.Table(
    "aorta_reports",
    METADATA,
    sa.Column("job_id", sa.String(200), primary_key=True),
    sa.Column("cycle_id", sa.String(200), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("received", sa.Float, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

# Cycles keep their order though the clock was set back; a row another service just put there stays.
_NEW_CYCLE = sa.text(
    "INSERT INTO aorta_cycles (job_id, cycle_id, created) VALUES (:job_id, :cycle_id,"
    " (SELECT CASE WHEN MAX(created) >= :now THEN MAX(created) + 0.00001 ELSE :now END"
    "  FROM aorta_cycles WHERE job_id = CAST(:job_id AS VARCHAR(200)))) ON CONFLICT DO NOTHING"
)
_NEW_REPORT = sa.text(
    "INSERT INTO aorta_reports (job_id, cycle_id, digest, received, body)"
    " VALUES (:job_id, :cycle_id, :digest, :now, :body) ON CONFLICT DO NOTHING"
)
_DECIDE = sa.text(
    "UPDATE aorta_cycles SET decided = :now, answer = :answer"
    " WHERE job_id = :job_id AND cycle_id = :cycle_id AND decided IS NULL"
)
_CYCLE = sa.text("SELECT answer FROM aorta_cycles WHERE job_id = :job_id AND cycle_id = :cycle_id")
_UNDECIDED = sa.text(
    "SELECT job_id, cycle_id FROM aorta_cycles WHERE decided IS NULL ORDER BY created"
)
_ANSWERS_BEFORE = sa.text(
    "SELECT cycle_id, answer FROM aorta_cycles WHERE job_id = :job_id AND answer IS NOT NULL"
    " AND created < (SELECT created FROM aorta_cycles"
    "  WHERE job_id = :job_id AND cycle_id = :cycle_id) ORDER BY created"
)
_BODIES = sa.text(
    "SELECT body FROM aorta_reports WHERE job_id = :job_id AND cycle_id = :cycle_id"
    " ORDER BY received, digest"
)


@dataclass(frozen=True)
class CycleKey:
    job_id: str
    cycle_id: str

    @property
    def values(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Reported:
    """All that an analysis of a cycle starts from, as JSON in the order it came."""

    reports: Sequence[str]
    earlier: Sequence[tuple[str, str]] = ()  # name and answer of the job's decided cycles before


def _queued(
    query: Callable[Concatenate["Store", sa.Connection, P], T],
) -> Callable[Concatenate["Store", P], Future[T]]:
    """The query, run in the store's thread; its result comes by a future once it is committed."""

    @functools.wraps(query)
    def submit(self: "Store", /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        def work() -> T:
            try:
                with self._engine.begin() as connection:
                    result = query(self, connection, *arguments, **named)
            except SQLAlchemyError:
                self.refuses = True
                raise
            self.refuses = False
            return result

        return self._thread.submit(work)

    return submit


class Store:
    """The database at a URL. Raises InfrastructureError where it cannot be opened."""

    def __init__(self, url: str) -> None:
        self.refuses = False  # whether the last thing asked of the database failed
        try:
            self._engine = sa.create_engine(url, pool_pre_ping=True)
            if self._engine.dialect.name == "sqlite":
                # Reports hold what jobs wrote. SQLite gives the files beside it the same mode.
                database = self._engine.url.database
                if database and database != ":memory:":
                    Path(database).touch(0o600)
                    Path(database).chmod(0o600)
                sa.event.listen(self._engine, "connect", _prepare_sqlite)
            METADATA.create_all(self._engine)
        except (SQLAlchemyError, ImportError, OSError) as wrong:
            kind = type(wrong).__name__  # its message may hold the password of the URL
            raise InfrastructureError(
                f"the database cannot be opened ({kind}); check --db"
            ) from None
        self._thread = ThreadPoolExecutor(1, "attribution-store")

    def close(self) -> None:
        """Everything handed in is committed first; a disk that hangs is not waited for."""
        with suppress(TimeoutError):
            self._thread.submit(int).result(_LAST_COMMIT)
        self._thread.shutdown(wait=False)
        self._engine.dispose()

    @_queued
    def add_report(self, connection: sa.Connection, key: CycleKey, digest: str, body: str) -> bool:
        """Keep what an agent said (JSON), by its digest. Returns whether it is new."""
        now = time.time()
        connection.execute(_NEW_CYCLE, {**key.values, "now": now})
        values = {**key.values, "now": now, "digest": digest, "body": body}
        return connection.execute(_NEW_REPORT, values).rowcount > 0

    @_queued
    def reported(self, connection: sa.Connection, key: CycleKey) -> Reported:
        rows = connection.execute(_ANSWERS_BEFORE, key.values)
        return Reported(
            tuple(connection.execute(_BODIES, key.values).scalars()),
            tuple((row.cycle_id, row.answer) for row in rows),
        )

    @_queued
    def decide(self, connection: sa.Connection, key: CycleKey, answer: Answer) -> Answer:
        """Set the answer unless there is one; either way return the one that stands."""
        values = {**key.values, "now": time.time(), "answer": json.dumps(answer)}
        connection.execute(_DECIDE, values)
        return _answer(connection, key) or answer

    @_queued
    def answer(self, connection: sa.Connection, key: CycleKey) -> Answer | None:
        """{"finding": ..., "decision": ...}, once and for all; None while it is undecided."""
        return _answer(connection, key)

    @_queued
    def undecided(self, connection: sa.Connection) -> list[CycleKey]:
        return [CycleKey(row.job_id, row.cycle_id) for row in connection.execute(_UNDECIDED)]


def _answer(connection: sa.Connection, key: CycleKey) -> Answer | None:
    found = connection.execute(_CYCLE, key.values).scalar()
    return None if found is None else dict(json.loads(found))


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
