"""What survives a restart or `kill -9`: reports, decisions, and which log belongs to which cycle.

One thread owns the database and commits what has queued up in one transaction, so that a thousand
agents reporting at once cost a few commits. What is asked is in `queries`. A database that goes
away is an error to whoever asks meanwhile, and is there again when it is there again.
"""

import os
import queue
import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from aorta.attribution.service import queries
from aorta.attribution.service.queries import CycleKey, CycleRow, Report
from aorta.core.errors import InfrastructureError

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

_LARGEST_BATCH = 256
_GOODBYE = 10.0  # seconds for the last commit: a disk that hangs is not waited for


class Store:
    def __init__(self, url: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Work[Any], Future[Any]] | None] = queue.SimpleQueue()
        self.refuses = False  # whether the last thing asked of the database failed
        try:
            self._engine = sa.create_engine(
                url, pool_pre_ping=True, connect_args=_connect_arguments(url)
            )
            if self._engine.dialect.name == "sqlite":
                _keep_private(self._engine.url.database)
                sa.event.listen(self._engine, "connect", _prepare_sqlite)
            queries.METADATA.create_all(self._engine)
        except (SQLAlchemyError, ImportError, OSError) as wrong:
            kind = type(wrong).__name__  # its message may hold the password of the URL
            raise InfrastructureError(
                f"the database cannot be opened ({kind}); check --db"
            ) from None
        self._thread = threading.Thread(target=self._run, name="attribution-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everything handed in is committed first."""
        self._queue.put(None)
        self._thread.join(_GOODBYE)
        self._engine.dispose()

    # Each method returns a future: the service awaits it, tests call .result().

    def add_reports(self, reports: Sequence[Report]) -> Future[None]:
        """Keep what agents reported; what is there already stays as it is."""
        return self._submit(lambda connection: queries.add_reports(connection, reports))

    def digests(self, key: CycleKey) -> Future[set[str]]:
        """Which reports of a cycle are there."""
        return self._submit(lambda connection: queries.digests(connection, key))

    def reports(self, key: CycleKey) -> Future[list[str]]:
        """The bodies of a cycle's reports, in the order they came."""
        return self._submit(lambda connection: queries.reports_of(connection, key))

    def reports_before(self, key: CycleKey) -> Future[list[str]]:
        """The bodies of the reports of the job's cycle before this one."""
        return self._submit(lambda connection: queries.reports_before(connection, key))

    def decide(self, key: CycleKey, answer: dict[str, Any]) -> Future[dict[str, Any]]:
        """Set the answer unless there is one; either way return the one that stands."""
        return self._submit(lambda connection: queries.decide(connection, key, answer))

    def add_opinion(self, key: CycleKey, opinion: dict[str, Any]) -> Future[None]:
        return self._submit(lambda connection: queries.add_opinion(connection, key, opinion))

    def forget_before(self, before: float) -> Future[int]:
        """Delete the jobs whose last cycle was reported before this moment; how many there were."""
        return self._submit(lambda connection: queries.forget_before(connection, before))

    def cycle(self, key: CycleKey) -> Future[CycleRow | None]:
        return self._submit(lambda connection: queries.cycle(connection, key))

    def cycles_of(self, job_id: str) -> Future[list[CycleRow]]:
        """Oldest first."""
        return self._submit(lambda connection: queries.cycles_of(connection, job_id))

    def answers_before(self, key: CycleKey) -> Future[list[tuple[str, str]]]:
        """Name and answer (JSON) of each decided cycle of the job before this one, oldest first."""
        return self._submit(lambda connection: queries.answers_before(connection, key))

    def undecided(self) -> Future[list[CycleKey]]:
        return self._submit(queries.undecided)

    def jobs(self, limit: int, after: str) -> Future[list[dict[str, Any]]]:
        return self._submit(lambda connection: queries.jobs(connection, limit, after))

    def add_log(self, path: str, key: CycleKey) -> Future[CycleKey]:
        """Remember whose log this is; the first owner stays. Returns the owner."""
        return self._submit(lambda connection: queries.add_log(connection, path, key))

    def owner_of(self, path: str) -> Future[CycleKey | None]:
        return self._submit(lambda connection: queries.owner(connection, path))

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
        """What has queued up and is still waited for; and whether it is the last."""
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
        # The caller hears of it, and the thread must outlive it.
        except Exception as wrong:  # noqa: BLE001
            if len(batch) == 1:
                self.refuses = True
                batch[0][1].set_exception(wrong)
            return False
        self.refuses = False
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
        return True


def _connect_arguments(url: str) -> dict[str, Any]:
    """A PostgreSQL that fell silent is given up after seconds, not after TCP's minutes."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "postgresql":
        return {}
    patience = {"connect_timeout": 5, "tcp_user_timeout": 10_000}
    return {name: value for name, value in patience.items() if name not in parsed.query}


def _keep_private(database: str | None) -> None:
    """Reports hold what jobs wrote. SQLite gives the files beside the database the same mode."""
    if not database or database == ":memory:":
        return
    descriptor = os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "busy_timeout=10000",
        "secure_delete=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
