"""Jobs, their history and the audit trail in one SQLite file. A shell: SQLite and the wall clock.

Every change of a job is one transaction together with its line in the audit trail, on disk before the call returns, so
that a controller killed at any moment finds exactly what it had told its clients. Which change is allowed is decided by
`job.advance_job`.
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
from etloop.controller.rack.people.reservations import Reservation
from etloop.controller.rack.standing_orders import OrderKind, StandingOrder
from etloop.controller.rack.store.seen_time import SeenTime
from etloop.controller.rack.store.store_file import (
    MAY_WRITE,
    RESTORE_STORE,
    STORE_VERSION,
    check,
    make_or_check,
    refuse_empty,
)
from etloop.runtime.clock import wall_time_text

_REQUEST: Final = codec_of(JobRequest, FILE_RULES)
_BUSY_MS: Final = 2000
"""How long a reader of the same file, such as a person with the sqlite3 shell, may hold a lock."""
_CACHE_KIB: Final = 256
"""Of pages kept in memory, which SQLite fills as it writes: its own 2 MiB look like a leak over the first hundred runs."""
_TRIM_LINES: Final = 64
"""Lines of the audit trail between two looks for what is too old."""
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
"""The time that was seen to pass, and how much of it when a job was first seen to have ended."""
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
    """The file cannot be read or written now, most often because its disk is full. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """Who did what to which job, and when (UTC, ISO 8601)."""

    line: int
    at: str
    who: str
    what: str
    job_id: str
    detail: str


class JobStore:
    """The jobs of one controller; others may read. Not shared between threads.

    Every method raises `StoreFailed`, and has changed nothing, if the file cannot be read or written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.row_factory = sqlite3.Row
        self._lines_since_trim = _TRIM_LINES

    @classmethod
    def open(cls, path: Path) -> JobStore:
        """The store at `path`, made if absent. Raises `ConfigError` if it cannot be used."""
        refuse_empty(path)
        try:
            # Autocommit: every transaction is stated where it begins.
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            make_or_check(connection, path, _TABLES)
            # Not of the first stores of this version.
            connection.execute("CREATE INDEX IF NOT EXISTS job_ended ON job (ended_at)")
            connection.executescript(_SEEN_TABLES + _ORDER_TABLE + _RESERVATION_TABLE)
        except sqlite3.Error as error:
            is_damaged = type(error) is sqlite3.DatabaseError
            remedy = RESTORE_STORE if is_damaged else MAY_WRITE
            raise ConfigError(Problem(str(path), f"cannot be used as job store: {error}", remedy)) from None
        return cls(connection)

    @classmethod
    def look(cls, path: Path) -> JobStore:
        """A store to read only, which a controller may be using. Raises `ConfigError` if there is none."""
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
        """Keeps a new job and returns it with True; the earlier job with False if its client key was used before."""
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
        """Moves a job on and keeps `changes` (fields of `Job`) with it; the job as it is then.

        Raises `IllegalTransition`, and changes nothing, where the event is not accepted.
        """
        state = advance_job(job.state, event)
        now = wall_time_text()
        moved = replace(job, state=state, **changes)
        if event is JobEvent.LEASED:
            moved = replace(moved, started_at=now)
        if state in ENDED:
            moved = replace(moved, ended_at=now)
        with self._transaction():
            self._write(moved)
            self._audit(who, f"{job.state} -> {state}", job.job_id, moved.reason if state in ENDED else "")
        return moved

    def prioritise(self, job: Job, priority: int, who: str) -> Job:
        """Keeps another priority of a queued job; the job as it is then."""
        assert job.state is JobState.QUEUED
        moved = replace(job, request=replace(job.request, priority=priority))
        with self._transaction():
            self._connection.execute(
                "UPDATE job SET priority = ?, request = ? WHERE job_id = ?",
                (priority, json.dumps(_REQUEST.write(moved.request)), job.job_id),
            )
            self._audit(who, f"priority {job.request.priority} -> {priority}", job.job_id, "")
        return moved

    def standing_orders(self) -> tuple[StandingOrder, ...]:
        """Every order that was given and not taken back."""
        rows = self._rows("SELECT kind, subject, who, reason, since FROM standing_order")
        return tuple(StandingOrder(OrderKind(row["kind"]), *row[1:]) for row in rows)

    def order(self, kind: OrderKind, subject: str, reason: str, who: str) -> StandingOrder:
        """Keeps an order, in place of an earlier one of its kind about the same."""
        order = StandingOrder(kind, subject, who, reason, wall_time_text())
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO standing_order (kind, subject, who, reason, since) VALUES (?, ?, ?, ?, ?)",
                (kind, subject, who, reason, order.since),
            )
            self._audit(who, f"{kind}: {_about(kind, subject)}", _job_of_order(kind, subject), reason)
        return order

    def withdraw(self, kind: OrderKind, subject: str, reason: str, who: str) -> bool:
        """Forgets an order; whether there was one."""
        with self._transaction():
            gone = self._connection.execute(
                "DELETE FROM standing_order WHERE kind = ? AND subject = ?", (kind, subject)
            ).rowcount
            if gone:
                about = f"no longer {kind}: {_about(kind, subject)}"
                self._audit(who, about, _job_of_order(kind, subject), reason)
        return bool(gone)

    def reservations(self) -> tuple[Reservation, ...]:
        """Every reservation that was made and is not over."""
        rows = self._rows("SELECT * FROM reservation")
        return tuple(Reservation(**dict(row) | {"ports": tuple(json.loads(row["ports"]))}) for row in rows)

    def reserve(self, made: Reservation) -> None:
        """Keeps a reservation."""
        values = (made.user, made.begins_ns, made.ends_ns, made.who, made.reason)
        with self._transaction():
            self._connection.execute(
                "INSERT INTO reservation (reservation_id, ports, user, begins_ns, ends_ns, who, reason) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (made.reservation_id, json.dumps(made.ports), *values),
            )
            self._audit(made.who, f"reserved {', '.join(made.ports)}", "", made.text())

    def unreserve(self, made: Reservation, why: str, who: str) -> None:
        """Forgets a reservation."""
        with self._transaction():
            self._connection.execute(
                "DELETE FROM reservation WHERE reservation_id = ?", (made.reservation_id,)
            )
            self._audit(who, f"no longer reserved: {', '.join(made.ports)}", "", why)

    def seen_time(self) -> SeenTime:
        """How much time controllers of this store have seen pass."""
        rows = self._rows("SELECT seen_ns, boot, uptime_ns FROM seen_time")
        return SeenTime(*rows[0]) if rows else SeenTime()

    def see(self, now: SeenTime, ended: Sequence[str]) -> dict[str, int]:
        """Keeps how much time was seen to pass, and that jobs with artifacts have ended by now; of `ended` how long ago."""
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
        found = self._rows(
            "SELECT job_id, seen_ns FROM job_seen WHERE job_id IN (SELECT value FROM json_each(?))",
            json.dumps(ended),
        )
        return {row[0]: max(now.seen_ns - row[1], 0) for row in found}

    def forget_artifacts(self, job: Job, who: str) -> Job:
        """Notes that the run directory of an ended job was removed."""
        assert job.state in ENDED
        bare = replace(job, run_directory="", artifact_bytes=0)
        with self._transaction():
            self._write(bare)
            self._connection.execute("DELETE FROM job_seen WHERE job_id = ?", (job.job_id,))
            self._audit(who, "artifacts removed", job.job_id, job.run_directory)
        return bare

    def note(self, who: str, what: str, job_id: str = "", detail: str = "") -> None:
        """A line of the audit trail that changes no job, such as a refused submission."""
        with self._transaction():
            self._audit(who, what, job_id, detail)

    def probe(self) -> None:
        """Raises `StoreFailed` if nothing could be written now; changes nothing."""
        with self._transaction():
            self._connection.execute(f"PRAGMA user_version = {STORE_VERSION}")

    def trim(self, most_ended_jobs: int, most_audit_lines: int) -> tuple[str, ...]:
        """Forgets the oldest ended jobs that have no artifacts left, and the oldest audit lines; which jobs.

        Looks only when enough was written since it last did that there may be something.
        """
        if self._lines_since_trim < _TRIM_LINES:
            return ()
        self._lines_since_trim = 0
        with self._transaction():
            gone = self._connection.execute(
                "DELETE FROM job WHERE run_directory = '' AND ended_at != '' AND number NOT IN "
                "(SELECT number FROM job WHERE ended_at != '' ORDER BY number DESC LIMIT ?) RETURNING job_id",
                (most_ended_jobs,),
            ).fetchall()
            self._connection.execute(
                "DELETE FROM audit WHERE line <= (SELECT COALESCE(MAX(line), 0) FROM audit) - ?",
                (most_audit_lines,),
            )
        return tuple(row[0] for row in gone)

    # ---- questions

    def find(self, job_id: str) -> Job | None:
        """The job of that id."""
        return next(iter(self._jobs(_BY_ID, job_id)), None)

    def by_client_key(self, client_key: str) -> Job | None:
        """The job that was submitted with that key; None for "" as well."""
        return next(iter(self._jobs(_BY_CLIENT_KEY, client_key)), None) if client_key else None

    def in_states(self, *states: JobState) -> tuple[Job, ...]:
        """All jobs in one of these states, by submission."""
        return self._jobs(_IN_STATES, json.dumps(states))

    def latest(
        self, limit: int, before_number: int | None = None, states: Sequence[JobState] = tuple(JobState)
    ) -> tuple[Job, ...]:
        """The last `limit` jobs in one of `states`, newest first; `before_number` pages on."""
        return self._jobs(
            _LATEST, json.dumps(states), before_number if before_number is not None else 1 << 62, limit
        )

    def last_ended(self, limit: int, skipped: int = 0) -> tuple[str, ...]:
        """Ids of the jobs that ended last, the last first, after the `skipped` last."""
        return tuple(row[0] for row in self._rows(_LAST_ENDED, limit, skipped))

    def changed_since(self, line: int) -> tuple[Job, ...]:
        """Jobs of which the audit trail tells something after `line`, by submission."""
        return self._jobs(_CHANGED_SINCE, line, _MOST_CHANGED)

    def last_line(self) -> int:
        """Number of the last line of the audit trail; 0 if it has none."""
        return int(self._rows("SELECT COALESCE(MAX(line), 0) FROM audit")[0][0])

    def with_artifacts(self, limit: int) -> tuple[Job, ...]:
        """The oldest `limit` ended jobs that still have a run directory, oldest first."""
        return self._jobs(_WITH_ARTIFACTS, limit)

    def artifact_bytes(self) -> int:
        """Bytes of all run directories that are kept."""
        return int(self._rows(_KEPT_BYTES)[0][0])

    def count(self, *states: JobState) -> int:
        """How many jobs are in one of these states."""
        return int(self._rows(_COUNT, json.dumps(states))[0][0])

    def oldest_submitted_at(self, state: JobState) -> str:
        """When the first of the jobs in a state was submitted; "" if there is none."""
        rows = self._rows(_OLDEST, state)
        return str(rows[0][0]) if rows else ""

    def audit(self, job_id: str | None = None, limit: int = 1000) -> tuple[AuditLine, ...]:
        """The last lines of the audit trail, oldest first; of one job if `job_id` is given."""
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
                # On a full disk SQLite may have rolled back by itself.
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

    def _audit(self, who: str, what: str, job_id: str, detail: str) -> None:
        self._lines_since_trim += 1
        self._connection.execute(
            "INSERT INTO audit (at, who, what, job_id, detail) VALUES (?, ?, ?, ?, ?)",
            (wall_time_text(), who, what, job_id, detail),
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
        what = f"the job store holds what this version does not read: job {row['job_id']}: {error}"
        raise StoreFailed(what) from error


def _job_of(found: dict[str, Any]) -> Job:
    code = found["exit_code"]
    return Job(
        **found
        | {
            "request": _REQUEST.read(json.loads(found["request"])),
            "state": JobState(found["state"]),
            "leased": tuple(json.loads(found["leased"])),
            "exit_code": ExitCode(code) if code is not None else None,
        }
    )
