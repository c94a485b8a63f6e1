"""Jobs, their history and the audit trail in one SQLite file. A shell: SQLite and the wall clock.

Every change of a job is one transaction together with its audit line, and is on disk before the call returns: after a
controller is killed at any moment, the store holds exactly what its clients were informed of. `job.advance_job` decides
which changes are allowed.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.codec import codec_of
from etloop.contract.protocol.typed_form import FILE_RULES, Misfit
from etloop.controller.rack.job import ENDED, Job, JobEvent, JobRequest, JobState, advance_job
from etloop.controller.rack.maintenance import OrderKind, StandingOrder
from etloop.controller.rack.store.seen_time import SeenTime
from etloop.controller.rack.store.store_file import (
    MAY_WRITE,
    RESTORE_STORE,
    STORE_VERSION,
    check,
    make_or_check,
    refuse_empty,
)
from etloop.controller.rack.users.reservations import Reservation
from etloop.runtime.clock import wall_time_text

_REQUEST: Final = codec_of(JobRequest, FILE_RULES)
_BUSY_MS: Final = 2000
"""How long another reader of the file, such as a person with the sqlite3 shell, may hold a lock."""
_CACHE_KIB: Final = 256
"""Page cache, which SQLite fills as it writes: its default of 2 MiB would appear as a leak over the first hundred runs."""
_TRIM_LINES: Final = 64
"""Audit lines written between two checks for old ones."""
_TABLES: Final = """
CREATE TABLE job (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE,
    client_key TEXT,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    request TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    started_at TEXT NOT NULL DEFAULT '',
    ended_at TEXT NOT NULL DEFAULT '',
    leased TEXT NOT NULL DEFAULT '[]',
    exit_code INTEGER,
    reason TEXT NOT NULL DEFAULT '',
    run_directory TEXT NOT NULL DEFAULT '',
    artifact_bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX job_client_key ON job (client_key) WHERE client_key IS NOT NULL;
CREATE INDEX job_state ON job (state);
CREATE INDEX job_kept ON job (number, artifact_bytes) WHERE run_directory != '';
CREATE TABLE audit (
    line INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    job_id TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_job ON audit (job_id);
"""
_SEEN_TABLES: Final = """
CREATE TABLE IF NOT EXISTS seen_time (
    only INTEGER PRIMARY KEY CHECK (only = 1), seen_ns INTEGER NOT NULL, boot TEXT NOT NULL, uptime_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS job_seen (job_id TEXT PRIMARY KEY, seen_ns INTEGER NOT NULL) STRICT;
"""
"""Time that was seen to pass, and its value when a job was first seen to have ended (`seen_time`)."""
_ORDER_TABLE: Final = """
CREATE TABLE IF NOT EXISTS standing_order (
    kind TEXT NOT NULL, subject TEXT NOT NULL, who TEXT NOT NULL, reason TEXT NOT NULL, since TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
) STRICT;
"""
_RESERVATION_TABLE: Final = """
CREATE TABLE IF NOT EXISTS reservation (
    reservation_id TEXT PRIMARY KEY, ports TEXT NOT NULL, user TEXT NOT NULL, begins_ns INTEGER NOT NULL,
    ends_ns INTEGER NOT NULL, who TEXT NOT NULL, reason TEXT NOT NULL
) STRICT;
"""
_MOST_CHANGED: Final = 10_000


class StoreFailed(EtloopError):
    """The file cannot be read or written now, most often because its disk is full. No job was changed."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """Who did what to which job, and when (UTC, ISO 8601)."""

    line: int
    at: str
    who: str
    event: str
    job_id: str
    detail: str


class JobStore:
    """The jobs of one controller; other processes may read. Not shared between threads.

    Methods raise `StoreFailed`, and change nothing, if the file cannot be read or written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.row_factory = sqlite3.Row
        self._lines_since_trim = _TRIM_LINES

    @classmethod
    def open(cls, path: Path) -> JobStore:
        """Open the store at `path`, made if absent. Raises `ConfigError` if it cannot be used."""
        refuse_empty(path)
        try:
            # Autocommit: every transaction begins explicitly.
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            make_or_check(connection, path, _TABLES)
            # Missing in the first stores of this version.
            connection.execute("CREATE INDEX IF NOT EXISTS job_ended ON job (ended_at)")
            connection.executescript(_SEEN_TABLES + _ORDER_TABLE + _RESERVATION_TABLE)
        except sqlite3.Error as error:
            is_damaged = type(error) is sqlite3.DatabaseError
            remedy = RESTORE_STORE if is_damaged else MAY_WRITE
            raise ConfigError(Problem(str(path), f"cannot be used as job store: {error}", remedy)) from None
        return cls(connection)

    @classmethod
    def look(cls, path: Path) -> JobStore:
        """Open a store for reading only, which a controller may be using. Raises `ConfigError` if there is none."""
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
            )
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute("PRAGMA query_only = ON")
            check(connection, path)
        except sqlite3.Error as error:
            remedy = "name the state directory of a controller that has run"
            raise ConfigError(Problem(str(path), f"cannot be read as job store: {error}", remedy)) from None
        return cls(connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # ---- changes

    def submit(self, job_id: str, request: JobRequest, who: str) -> tuple[Job, bool]:
        """Add a job and return (job, True); (earlier job, False) if its client key was used before."""
        with self._transaction():
            earlier = self.by_client_key(request.client_key)
            if earlier is not None:
                return earlier, False
            self._connection.execute(
                "INSERT INTO job (job_id, client_key, state, priority, request, submitted_at) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    job_id,
                    request.client_key or None,
                    JobState.QUEUED,
                    request.priority,
                    json.dumps(_REQUEST.write(request)),
                    wall_time_text(),
                ),
            )
            self._audit(who, "submitted", job_id, "")
        job = self.find(job_id)
        assert job is not None
        return job, True

    def advance(self, job: Job, event: JobEvent, who: str, **changes: Any) -> Job:
        """Apply an event to a job, store `changes` (fields of `Job`) with it, and return the new job.

        Raises `IllegalTransition`, and changes nothing, if the job's state does not accept the event.
        """
        state = advance_job(job.state, event)
        now_text = wall_time_text()
        new_job = replace(job, state=state, **changes)
        if event is JobEvent.LEASED:
            new_job = replace(new_job, started_at=now_text)
        if state in ENDED:
            new_job = replace(new_job, ended_at=now_text)
        with self._transaction():
            self._write(new_job)
            self._audit(who, f"{job.state} -> {state}", job.job_id, new_job.reason if state in ENDED else "")
        return new_job

    def prioritise(self, job: Job, priority: int, who: str) -> Job:
        """Store another priority of a queued job, and return the new job."""
        assert job.state is JobState.QUEUED
        new_job = replace(job, request=replace(job.request, priority=priority))
        with self._transaction():
            self._connection.execute(
                "UPDATE job SET priority = ?, request = ? WHERE job_id = ?",
                (priority, json.dumps(_REQUEST.write(new_job.request)), job.job_id),
            )
            self._audit(who, f"priority {job.request.priority} -> {priority}", job.job_id, "")
        return new_job

    def standing_orders(self) -> tuple[StandingOrder, ...]:
        """Return all orders that have not been withdrawn."""
        rows = self._rows("SELECT kind, subject, who, reason, since FROM standing_order")
        return tuple(StandingOrder(OrderKind(row["kind"]), *row[1:]) for row in rows)

    def order(self, kind: OrderKind, subject: str, reason: str, who: str) -> StandingOrder:
        """Store an order, replacing an earlier one of its kind about the same subject."""
        order = StandingOrder(kind, subject, who, reason, wall_time_text())
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO standing_order (kind, subject, who, reason, since) VALUES (?, ?, ?, ?, ?)",
                (kind, subject, who, reason, order.since),
            )
            self._audit(who, f"{kind}: {_about(kind, subject)}", _job_of_order(kind, subject), reason)
        return order

    def withdraw(self, kind: OrderKind, subject: str, reason: str, who: str) -> bool:
        """Remove an order; return whether there was one."""
        with self._transaction():
            removed_rows = self._connection.execute(
                "DELETE FROM standing_order WHERE kind = ? AND subject = ?", (kind, subject)
            ).rowcount
            if removed_rows:
                event = f"no longer {kind}: {_about(kind, subject)}"
                self._audit(who, event, _job_of_order(kind, subject), reason)
        return bool(removed_rows)

    def reservations(self) -> tuple[Reservation, ...]:
        """Return all reservations that have not been removed."""
        rows = self._rows("SELECT * FROM reservation")
        return tuple(Reservation(**dict(row) | {"ports": tuple(json.loads(row["ports"]))}) for row in rows)

    def reserve(self, made: Reservation) -> None:
        """Store a reservation."""
        values = (made.user, made.begins_ns, made.ends_ns, made.who, made.reason)
        with self._transaction():
            self._connection.execute(
                "INSERT INTO reservation (reservation_id, ports, user, begins_ns, ends_ns, who, reason) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (made.reservation_id, json.dumps(made.ports), *values),
            )
            self._audit(made.who, f"reserved {', '.join(made.ports)}", "", made.text())

    def unreserve(self, made: Reservation, why: str, who: str) -> None:
        """Remove a reservation."""
        with self._transaction():
            self._connection.execute(
                "DELETE FROM reservation WHERE reservation_id = ?", (made.reservation_id,)
            )
            self._audit(who, f"no longer reserved: {', '.join(made.ports)}", "", why)

    def seen_time(self) -> SeenTime:
        """Return the time that controllers of this store have seen pass."""
        rows = self._rows("SELECT seen_ns, boot, uptime_ns FROM seen_time")
        return SeenTime(*rows[0]) if rows else SeenTime()

    def see(self, now: SeenTime, ended: Sequence[str]) -> dict[str, int]:
        """Store the time seen to pass, and mark newly ended jobs with artifacts; return for each of `ended` its age in ns."""
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO seen_time (only, seen_ns, boot, uptime_ns) VALUES (1, ?, ?, ?)",
                (now.seen_ns, now.boot, now.uptime_ns),
            )
            self._connection.execute(
                "INSERT OR IGNORE INTO job_seen (job_id, seen_ns) "
                "SELECT job_id, ? FROM job WHERE run_directory != '' AND ended_at != ''",
                (now.seen_ns,),
            )
        rows = self._rows(
            "SELECT job_id, seen_ns FROM job_seen WHERE job_id IN (SELECT value FROM json_each(?))",
            json.dumps(ended),
        )
        return {row[0]: max(now.seen_ns - row[1], 0) for row in rows}

    def forget_artifacts(self, job: Job, who: str) -> Job:
        """Record that the run directory of an ended job was removed."""
        assert job.state in ENDED
        new_job = replace(job, run_directory="", artifact_bytes=0)
        with self._transaction():
            self._write(new_job)
            self._connection.execute("DELETE FROM job_seen WHERE job_id = ?", (job.job_id,))
            self._audit(who, "artifacts removed", job.job_id, job.run_directory)
        return new_job

    def note(self, who: str, event: str, job_id: str = "", detail: str = "") -> None:
        """Add an audit line that changes no job, such as a refused submission."""
        with self._transaction():
            self._audit(who, event, job_id, detail)

    def probe(self) -> None:
        """Raise `StoreFailed` if the file cannot be written now; changes nothing."""
        with self._transaction():
            self._connection.execute(f"PRAGMA user_version = {STORE_VERSION}")

    def trim(self, most_ended_jobs: int, most_audit_lines: int) -> tuple[str, ...]:
        """Remove the oldest ended jobs without artifacts, and the oldest audit lines; return the ids of these jobs.

        Does nothing until `_TRIM_LINES` audit lines were written since the last time.
        """
        if self._lines_since_trim < _TRIM_LINES:
            return ()
        self._lines_since_trim = 0
        with self._transaction():
            removed_rows = self._connection.execute(
                "DELETE FROM job WHERE run_directory = '' AND ended_at != '' AND number NOT IN "
                "(SELECT number FROM job WHERE ended_at != '' ORDER BY number DESC LIMIT ?) RETURNING job_id",
                (most_ended_jobs,),
            ).fetchall()
            self._connection.execute(
                "DELETE FROM audit WHERE line <= (SELECT COALESCE(MAX(line), 0) FROM audit) - ?",
                (most_audit_lines,),
            )
        return tuple(row[0] for row in removed_rows)

    # ---- questions

    def find(self, job_id: str) -> Job | None:
        """Return the job of that id; None if there is none."""
        return next(iter(self._jobs(_BY_ID, job_id)), None)

    def by_client_key(self, client_key: str) -> Job | None:
        """Return the job that was submitted with that key; None if there is none, or the key is ""."""
        return next(iter(self._jobs(_BY_CLIENT_KEY, client_key)), None) if client_key else None

    def in_states(self, *states: JobState) -> tuple[Job, ...]:
        """Return all jobs in one of these states, in order of submission."""
        return self._jobs(_IN_STATES, json.dumps(states))

    def latest(
        self, limit: int, before_number: int | None = None, states: Sequence[JobState] = tuple(JobState)
    ) -> tuple[Job, ...]:
        """Return the last `limit` jobs in one of `states`, newest first; only numbers below `before_number` if given."""
        return self._jobs(
            _LATEST, json.dumps(states), before_number if before_number is not None else 1 << 62, limit
        )

    def last_ended(self, limit: int, skipped: int = 0) -> tuple[str, ...]:
        """Return the ids of the most recently ended jobs, latest first, without the first `skipped`."""
        return tuple(row[0] for row in self._rows(_LAST_ENDED, limit, skipped))

    def changed_since(self, line: int) -> tuple[Job, ...]:
        """Return the jobs with audit lines after `line`, in order of submission."""
        return self._jobs(_CHANGED_SINCE, line, _MOST_CHANGED)

    def last_line(self) -> int:
        """Return the number of the last audit line; 0 if there is none."""
        return int(self._rows("SELECT COALESCE(MAX(line), 0) FROM audit")[0][0])

    def with_artifacts(self, limit: int) -> tuple[Job, ...]:
        """Return the oldest `limit` ended jobs that still have a run directory, oldest first."""
        return self._jobs(_WITH_ARTIFACTS, limit)

    def artifact_bytes(self) -> int:
        """Return the bytes of all run directories that are kept."""
        return int(self._rows(_KEPT_BYTES)[0][0])

    def count(self, *states: JobState) -> int:
        """Return how many jobs are in one of these states."""
        return int(self._rows(_COUNT, json.dumps(states))[0][0])

    def oldest_submitted_at(self, state: JobState) -> str:
        """Return when the first of the jobs in a state was submitted; "" if there is none."""
        rows = self._rows(_OLDEST, state)
        return str(rows[0][0]) if rows else ""

    def audit(self, job_id: str | None = None, limit: int = 1000) -> tuple[AuditLine, ...]:
        """Return the last audit lines, oldest first; those of one job if `job_id` is given."""
        rows = self._rows(_AUDIT, job_id, job_id, limit)
        return tuple(AuditLine(*row) for row in reversed(rows))

    # ---- inside

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # After an error such as a full disk, SQLite may have rolled back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreFailed(f"the job store cannot be written: {error}") from error

    def _write(self, job: Job) -> None:
        self._connection.execute(
            "UPDATE job SET state = ?, started_at = ?, ended_at = ?, leased = ?, exit_code = ?, reason = ?, "
            "run_directory = ?, artifact_bytes = ? WHERE job_id = ?",
            (
                job.state,
                job.started_at,
                job.ended_at,
                json.dumps(job.leased),
                int(job.exit_code) if job.exit_code is not None else None,
                job.reason,
                job.run_directory,
                job.artifact_bytes,
                job.job_id,
            ),
        )

    def _audit(self, who: str, event: str, job_id: str, detail: str) -> None:
        self._lines_since_trim += 1
        self._connection.execute(
            "INSERT INTO audit (at, who, what, job_id, detail) VALUES (?, ?, ?, ?, ?)",
            (wall_time_text(), who, event, job_id, detail),
        )

    def _jobs(self, query: str, *values: object) -> tuple[Job, ...]:
        return tuple(_job(row) for row in self._rows(query, *values))

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"the job store cannot be read: {error}") from error


_COLUMNS: Final = (
    "SELECT job_id, number, request, state, submitted_at, started_at, ended_at, leased, exit_code, reason, "
    "run_directory, artifact_bytes FROM job "
)
_BY_ID: Final = _COLUMNS + "WHERE job_id = ?"
_BY_CLIENT_KEY: Final = _COLUMNS + "WHERE client_key = ?"
_AMONG: Final = "WHERE state IN (SELECT value FROM json_each(?)) "
_IN_STATES: Final = _COLUMNS + _AMONG + "ORDER BY number"
_LATEST: Final = _COLUMNS + _AMONG + "AND number < ? ORDER BY number DESC LIMIT ?"
_WITH_ARTIFACTS: Final = _COLUMNS + "WHERE run_directory != '' AND ended_at != '' ORDER BY number LIMIT ?"
_LAST_ENDED: Final = (
    "SELECT job_id FROM job WHERE ended_at != '' ORDER BY ended_at DESC, number DESC LIMIT ? OFFSET ?"
)
_JOBS_IN_AUDIT: Final = "WHERE job_id IN (SELECT job_id FROM audit WHERE line > ?) "
_CHANGED_SINCE: Final = _COLUMNS + _JOBS_IN_AUDIT + "ORDER BY number LIMIT ?"
_KEPT_BYTES: Final = "SELECT COALESCE(SUM(artifact_bytes), 0) FROM job WHERE run_directory != ''"
_COUNT: Final = "SELECT COUNT(*) FROM job WHERE state IN (SELECT value FROM json_each(?))"
_OLDEST: Final = "SELECT submitted_at FROM job WHERE state = ? ORDER BY number LIMIT 1"
_AUDIT: Final = "SELECT line, at, who, what, job_id, detail FROM audit WHERE ? IS NULL OR job_id = ? ORDER BY line DESC LIMIT ?"


def _about(kind: OrderKind, subject: str) -> str:
    match kind:
        case OrderKind.DRAINED | OrderKind.QUARANTINED:
            return f"port {subject}"
        case OrderKind.HELD:
            return "the job"
        case OrderKind.PAUSED:
            return "the queue"


def _job_of_order(kind: OrderKind, subject: str) -> str:
    return subject if kind is OrderKind.HELD else ""


def _job(row: sqlite3.Row) -> Job:
    try:
        return _job_of(dict(row))
    except (Misfit, ValueError, TypeError) as error:
        problem = f"this version cannot read the job store's entry of job {row['job_id']}: {error}"
        raise StoreFailed(problem) from error


def _job_of(row: dict[str, Any]) -> Job:
    code = row["exit_code"]
    return Job(
        **row
        | {
            "request": _REQUEST.read(json.loads(row["request"])),
            "state": JobState(row["state"]),
            "leased": tuple(json.loads(row["leased"])),
            "exit_code": ExitCode(code) if code is not None else None,
        }
    )
