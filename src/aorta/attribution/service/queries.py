"""What is asked of the database: plain SQL that SQLite and PostgreSQL both take, and the rows it
gives.

The statements are constants: one put together anew for every call costs ten times what SQLite takes
to answer it.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

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
sa.Table(
    "aorta_opinions",
    METADATA,
    sa.Column("job_id", sa.String(200), primary_key=True),
    sa.Column("cycle_id", sa.String(200), primary_key=True),
    sa.Column("opinion", sa.Text, nullable=False),
)
sa.Table(
    "aorta_logs",
    METADATA,
    sa.Column("path", sa.String(4096), primary_key=True),
    sa.Column("job_id", sa.String(200), nullable=False),
    sa.Column("cycle_id", sa.String(200), nullable=False),
)

# A job's later cycle is the later one though the clock was set back between the two. A row that
# another service put there this moment stays as it is.
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
_DECIDE = sa.text(
    "UPDATE aorta_cycles SET decided = :now, answer = :answer"
    " WHERE job_id = :job_id AND cycle_id = :cycle_id AND decided IS NULL"
)
_CYCLES = (
    "SELECT c.job_id, c.cycle_id, c.created, c.decided, c.answer, o.opinion FROM aorta_cycles c"
    " LEFT JOIN aorta_opinions o ON o.job_id = c.job_id AND o.cycle_id = c.cycle_id"
    " WHERE c.job_id = :job_id"
)
_CYCLE = sa.text(f"{_CYCLES} AND c.cycle_id = :cycle_id")
_CYCLES_OF = sa.text(f"{_CYCLES} ORDER BY c.created, c.cycle_id")
_NEW_OPINION = sa.text(
    "INSERT INTO aorta_opinions (job_id, cycle_id, opinion) VALUES (:job_id, :cycle_id, :opinion)"
    " ON CONFLICT DO NOTHING"
)
_OLD_JOBS = sa.text("SELECT job_id FROM aorta_cycles GROUP BY job_id HAVING MAX(created) < :before")
_FORGET = [
    sa.text(f"DELETE FROM {table.name} WHERE job_id = :job_id")  # noqa: S608 - our own names
    for table in METADATA.sorted_tables
]
_UNDECIDED = sa.text(
    "SELECT job_id, cycle_id FROM aorta_cycles WHERE decided IS NULL ORDER BY created"
)
_ANSWERS_BEFORE = sa.text(
    "SELECT cycle_id, answer FROM aorta_cycles WHERE job_id = :job_id AND answer IS NOT NULL"
    " AND created < (SELECT created FROM aorta_cycles"
    "  WHERE job_id = :job_id AND cycle_id = :cycle_id) ORDER BY created"
)
_BODIES_BEFORE = sa.text(
    "SELECT body FROM aorta_reports WHERE job_id = :job_id AND cycle_id ="
    " (SELECT cycle_id FROM aorta_cycles WHERE job_id = :job_id AND created <"
    "  (SELECT created FROM aorta_cycles WHERE job_id = :job_id AND cycle_id = :cycle_id)"
    "  ORDER BY created DESC LIMIT 1) ORDER BY received, digest"
)
_JOBS = sa.text(
    "SELECT job_id, COUNT(*) AS cycles, COUNT(decided) AS decided, MAX(created) AS latest"
    " FROM aorta_cycles WHERE job_id > :after GROUP BY job_id ORDER BY job_id LIMIT :limit"
)
_DIGESTS = sa.text(
    "SELECT digest FROM aorta_reports WHERE job_id = :job_id AND cycle_id = :cycle_id"
)
_BODIES = sa.text(
    "SELECT body FROM aorta_reports WHERE job_id = :job_id AND cycle_id = :cycle_id"
    " ORDER BY received, digest"
)
_OWNER = sa.text("SELECT job_id, cycle_id FROM aorta_logs WHERE path = :path")


@dataclass(frozen=True)
class CycleKey:
    job_id: str
    cycle_id: str

    @property
    def values(self) -> dict[str, Any]:
        return {"job_id": self.job_id, "cycle_id": self.cycle_id}


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
    opinion: dict[str, Any] | None = None


def add_reports(connection: sa.Connection, reports: Sequence[Report]) -> None:
    now = time.time()
    cycles = {report.key: {**report.key.values, "now": now} for report in reports}
    rows = [
        {**cycles[report.key], "digest": report.digest, "body": report.body} for report in reports
    ]
    connection.execute(_NEW_CYCLE, list(cycles.values()))
    connection.execute(_NEW_REPORT, rows)


def digests(connection: sa.Connection, key: CycleKey) -> set[str]:
    return set(connection.execute(_DIGESTS, key.values).scalars())


def reports_of(connection: sa.Connection, key: CycleKey) -> list[str]:
    return list(connection.execute(_BODIES, key.values).scalars())


def answers_before(connection: sa.Connection, key: CycleKey) -> list[tuple[str, str]]:
    rows = connection.execute(_ANSWERS_BEFORE, key.values)
    return [(row.cycle_id, row.answer) for row in rows]


def reports_before(connection: sa.Connection, key: CycleKey) -> list[str]:
    return list(connection.execute(_BODIES_BEFORE, key.values).scalars())


def undecided(connection: sa.Connection) -> list[CycleKey]:
    return [CycleKey(row.job_id, row.cycle_id) for row in connection.execute(_UNDECIDED)]


def decide(connection: sa.Connection, key: CycleKey, answer: dict[str, Any]) -> dict[str, Any]:
    values = {**key.values, "now": time.time(), "answer": json.dumps(answer)}
    connection.execute(_DECIDE, values)
    row = cycle(connection, key)
    return row.answer if row is not None and row.answer is not None else answer


def add_opinion(connection: sa.Connection, key: CycleKey, opinion: dict[str, Any]) -> None:
    connection.execute(_NEW_OPINION, {**key.values, "opinion": json.dumps(opinion)})


def forget_before(connection: sa.Connection, before: float) -> int:
    """Whole jobs, by their last cycle: a job's next cycle is compared with all before it."""
    jobs = [
        {"job_id": name} for name in connection.execute(_OLD_JOBS, {"before": before}).scalars()
    ]
    for delete in _FORGET if jobs else ():
        connection.execute(delete, jobs)
    return len(jobs)


def cycle(connection: sa.Connection, key: CycleKey) -> CycleRow | None:
    return next(iter(_rows(connection.execute(_CYCLE, key.values))), None)


def cycles_of(connection: sa.Connection, job_id: str) -> list[CycleRow]:
    return _rows(connection.execute(_CYCLES_OF, {"job_id": job_id}))


def jobs(connection: sa.Connection, limit: int, after: str) -> list[dict[str, Any]]:
    rows = connection.execute(_JOBS, {"limit": limit, "after": after})
    return [dict(row) for row in rows.mappings()]


def add_log(connection: sa.Connection, path: str, key: CycleKey) -> CycleKey:
    connection.execute(_NEW_LOG, {**key.values, "path": path})
    return owner(connection, path) or key


def owner(connection: sa.Connection, path: str) -> CycleKey | None:
    row = connection.execute(_OWNER, {"path": path}).first()
    return None if row is None else CycleKey(row.job_id, row.cycle_id)


def _rows(found: Iterable[Any]) -> list[CycleRow]:
    return [
        CycleRow(
            CycleKey(row.job_id, row.cycle_id),
            row.created,
            row.decided,
            None if row.answer is None else json.loads(row.answer),
            None if row.opinion is None else json.loads(row.opinion),
        )
        for row in found
    ]
