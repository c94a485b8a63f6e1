"""Reads an SNMP agent, version 2c or 3 (authenticated and encrypted). A shell: gufo-snmp's asyncio session over UDP.

Opening finds the interfaces by a bulk walk of their names, and the columns that this agent serves by requesting all columns of
a few interfaces; reading requests those columns of all interfaces, a bounded number per request. A request without an answer is
repeated (`SnmpSource.tries`). `snmp_rows` interprets values; the library checks request numbers, engine and signatures.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind
from etloop.counters.base.credentials import (
    Community,
    SnmpUser,
    credentials_text,
    snmp_credentials,
)
from etloop.counters.readers.snmp_objects import IF_ALIAS, IF_DESCR, IF_NAME, SYS_UPTIME
from etloop.counters.readers.snmp_rows import (
    Instance,
    Interface,
    SnmpValue,
    asked_first,
    candidates,
    choose_interfaces,
    instances_of,
    interfaces_of,
    readings_of,
    restart_complaint,
    served_columns,
)
from etloop.counters.readers.snmp_settings import InterfaceNames, SnmpSource

if TYPE_CHECKING:
    from gufo.snmp.aio import SnmpSession
    from gufo.snmp.user import User

T = TypeVar("T")

VALUES_A_REQUEST: Final = 24
"""An answer with this many values fits into 1,472 bytes whatever they are; agents need not accept larger ones (RFC 3417: 484)."""
MOST_INTERFACES: Final = 4096
MOST_WALK_ROWS: Final = 2 * MOST_INTERFACES
REFRESH_AFTER_NS: Final = 60 * NS_PER_S
"""Version 3 allows clocks to differ by 150 s (RFC 3414 section 3.2); the agent's time is requested again well before that."""
_NAME_COLUMNS: Final = {
    InterfaceNames.IF_NAME: IF_NAME,
    InterfaceNames.IF_ALIAS: IF_ALIAS,
    InterfaceNames.IF_DESCR: IF_DESCR,
}


class _Failed(Exception):
    """A failed exchange, with the failure that the reader returns."""

    def __init__(self, kind: FailureKind, problem: str) -> None:
        super().__init__(problem)
        self.failure = CounterFailure(kind, problem)


class SnmpCounters:
    """The source `snmp`; see `protocol.DeviceCounters`."""

    def __init__(self, source: SnmpSource, ports: tuple[str, ...]) -> None:
        self._source = source
        self._ports = ports
        self._session: SnmpSession | None = None
        self._encrypted = False
        self._refreshed_ns = 0
        self._instances: tuple[Instance, ...] = ()
        self._witness = ""
        """An instance that this agent is known to have: an answer without it is an error of the whole request."""
        self._uptime: SnmpValue = None

    async def open(self) -> CounterFailure | None:
        """See `DeviceCounters`."""
        await self.close()
        try:
            await self._connect()
            interfaces = await self._interfaces()
            self._instances = await self._served_by(interfaces)
        except _Failed as failed:
            await self.close()
            return failed.failure
        return None

    async def read(self) -> CounterBatch | CounterFailure:
        """See `DeviceCounters`."""
        begun_ns = monotonic_ns()
        if self._session is None:
            return CounterFailure(FailureKind.ENDED, f"{self._source.address} is not open")
        try:
            if self._encrypted and begun_ns - self._refreshed_ns > REFRESH_AFTER_NS:
                await self._refresh()
            answers = await self._answers([SYS_UPTIME, *(instance.oid for instance in self._instances)])
        except _Failed as failed:
            return failed.failure
        readings, complaints = readings_of(
            self._instances, answers, octets_include_fcs=self._source.octets_include_fcs
        )
        if not readings:
            return CounterFailure(
                FailureKind.NONSENSE,
                f"{self._source.address} answers, but no longer has any of the counters",
            )
        if restarted := restart_complaint(self._uptime, answers.get(SYS_UPTIME)):
            complaints = (restarted, *complaints)
        self._uptime = answers.get(SYS_UPTIME)
        return CounterBatch(begun_ns, monotonic_ns(), readings, complaints)

    async def close(self) -> None:
        """See `DeviceCounters`."""
        self._session = None  # the library closes its socket with the last reference

    # ---- opening

    async def _connect(self) -> None:
        source = self._source
        try:
            credentials = snmp_credentials(credentials_text(source.credentials), source.credentials)
        except ConfigError as error:
            raise _Failed(
                FailureKind.REFUSED, "; ".join(str(problem) for problem in error.problems)
            ) from None
        try:
            from gufo.snmp.aio import SnmpSession
            from gufo.snmp.version import SnmpVersion
        except ImportError:
            missing = "the package gufo-snmp is not installed: pip install 'etloop[snmp]'"
            raise _Failed(FailureKind.REFUSED, missing) from None
        host = await _resolve(source)
        self._encrypted = isinstance(credentials, SnmpUser)
        version_and_user: dict[str, Any]
        if isinstance(credentials, Community):
            version_and_user = {"version": SnmpVersion.v2c, "community": credentials.community}
        else:
            version_and_user = {"version": SnmpVersion.v3, "user": _user(credentials)}
        try:
            self._session = SnmpSession(
                host,
                source.address.port,
                timeout=source.response_timeout_ns / NS_PER_S,
                max_repetitions=VALUES_A_REQUEST,
                **version_and_user,
            )
        except (OSError, ValueError) as error:
            raise _Failed(FailureKind.UNREACHABLE, f"{source.address}: {error}") from None
        if self._encrypted:
            await self._refresh()

    async def _refresh(self) -> None:
        """Request the agent's engine and clock, and sign in."""
        assert self._session is not None
        await self._try(self._session.refresh)
        self._refreshed_ns = monotonic_ns()

    async def _interfaces(self) -> tuple[Interface, ...]:
        column = _NAME_COLUMNS[self._source.names]
        rows = [row async for row in self._walk(column)]
        if not rows:
            problem_text = (
                f"{self._source.address} shows no interfaces by {self._source.names} "
                f"(IF-MIB {column}); check the view of the SNMP account"
            )
            raise _Failed(FailureKind.REFUSED, problem_text)
        interfaces, problem = choose_interfaces(interfaces_of(rows, column), self._ports)
        if problem or not interfaces:
            problem_text = problem or "no interface has a unique name"
            raise _Failed(FailureKind.REFUSED, f"{self._source.address}: {problem_text}")
        self._witness = f"{column}.{interfaces[0].index}"
        return interfaces

    async def _served_by(self, interfaces: Sequence[Interface]) -> tuple[Instance, ...]:
        """Return the instances to read. A few interfaces are probed for the columns that the agent serves."""
        instances: list[Instance] = []
        answers: dict[str, SnmpValue] = {}
        for interface in asked_first(interfaces):
            probed = candidates(interface)
            instances += probed
            answers |= await self._answers([instance.oid for instance in probed])
        columns = served_columns(instances, answers)
        if not columns:
            problem = f"{self._source.address} shows no counters of {interfaces[0].name}; check the view of the SNMP account"
            raise _Failed(FailureKind.REFUSED, problem)
        return instances_of(interfaces, columns)

    # ---- requests

    async def _walk(self, column: str) -> AsyncIterator[tuple[str, SnmpValue]]:
        """Yield the rows of a column, at most MOST_WALK_ROWS.

        Raise `_Failed` if OIDs do not increase or there are too many rows.
        """
        assert self._session is not None
        rows = self._session.getbulk(column, VALUES_A_REQUEST)
        previous: tuple[int, ...] = ()
        for _ in range(MOST_WALK_ROWS):
            with contextlib.suppress(StopAsyncIteration):
                oid, value = await self._try(rows.__anext__)
                place = tuple(map(int, oid.split(".")))
                if place <= previous:
                    problem = f"{self._source.address} returns OIDs out of order at {oid}"
                    raise _Failed(FailureKind.NONSENSE, problem)
                previous = place
                yield oid, value
                continue
            return
        problem = f"{self._source.address} has more than {MOST_WALK_ROWS} rows at {column}"
        raise _Failed(FailureKind.NONSENSE, problem)

    async def _answers(self, oids: Sequence[str]) -> dict[str, SnmpValue]:
        """Return the values of those instances that the agent has."""
        assert self._session is not None
        session = self._session
        answers: dict[str, SnmpValue] = {}
        at_once = VALUES_A_REQUEST
        place = 0
        while place < len(oids):
            request_oids = [self._witness, *oids[place : place + at_once]]
            response = await self._try(partial(session.get_many, request_oids))
            if self._witness not in response and at_once > 1:
                at_once //= 2  # an error of the whole request, such as tooBig (RFC 3416), has no values
                continue
            answers |= {oid: response[oid] for oid in request_oids if oid in response}
            place += at_once
        return answers

    async def _try(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Send one request, up to `SnmpSource.tries` times until an answer comes, and return the answer. Raise `_Failed`."""
        from gufo.snmp import SnmpAuthError, SnmpError

        agent = self._source.address
        is_refused = False
        try:
            for _ in range(self._source.tries):
                begun_ns = monotonic_ns()
                with contextlib.suppress(TimeoutError):
                    return await ask()
                # The library reports an ICMP refusal as a timeout, too, but at once.
                if is_refused := monotonic_ns() - begun_ns < self._source.response_timeout_ns // 2:
                    break
        except OSError as error:
            raise _Failed(FailureKind.UNREACHABLE, f"{agent}: {error.strerror or error}") from None
        except SnmpAuthError:
            problem = f"{agent} does not accept the user or its keys ({self._source.credentials})"
            raise _Failed(FailureKind.REFUSED, problem) from None
        except (SnmpError, ValueError) as error:
            problem = f"{agent} sent an invalid SNMP message: {str(error)[:128]}"
            raise _Failed(FailureKind.NONSENSE, problem) from None
        except BaseException as error:
            # A panic of the library's Rust code is not an `Exception` in Python; it must not end a run.
            if type(error).__name__ != "PanicException":
                raise
            problem = f"{agent} sent a message that the SNMP library cannot handle: {str(error)[:128]}"
            raise _Failed(FailureKind.NONSENSE, problem) from None
        if is_refused:
            raise _Failed(FailureKind.UNREACHABLE, f"no SNMP agent listens on UDP {agent}")
        waited = self._source.response_timeout_ns * self._source.tries / NS_PER_S
        likely_cause = "key of privacy" if self._encrypted else "community"
        problem = (
            f"no answer from {agent} in {waited:g} s; agents also ignore requests with a wrong {likely_cause}"
        )
        raise _Failed(FailureKind.UNREACHABLE, problem)


async def _resolve(source: SnmpSource) -> str:
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(source.address.host, source.address.port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise _Failed(FailureKind.UNREACHABLE, f"{source.address}: {error.strerror}") from None
    return str(addresses[0][4][0])


def _user(credentials: SnmpUser) -> User:
    from gufo.snmp import user as keys

    # The library has a class for each protocol: Sha256Key, Aes128Key.
    auth, privacy = (
        getattr(keys, f"{name.capitalize()}Key") for name in (credentials.auth, credentials.privacy)
    )
    return keys.User(
        credentials.user,
        auth_key=auth(credentials.auth_password.encode()),
        priv_key=privacy(credentials.privacy_password.encode()),
    )
