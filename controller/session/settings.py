"""The settings of a session, in addition to the plan: its address, the agents that may join, and its timeouts.

Every timeout of a session is here, with the reason for its default.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.endpoint import is_loopback
from etloop.contract.protocol.messages import REPORT_NS, Welcome

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Security

LOST_AFTER_NS: Final = 60 * NS_PER_S
"""TCP repeats what was lost after intervals that double: an interruption of 30 s is over within 60 s."""


@dataclass(frozen=True, slots=True)
class CurveServer:
    """Key files of an encrypted control connection (`runtime.curve_keys`)."""

    secret_key_file: Path
    """The controller's own certificate (`.key_secret`)."""
    agent_keys_dir: Path
    """The allow-list: public certificates (`.key`) of the agents that may connect."""

    @classmethod
    def of(cls, security: Security) -> CurveServer | None:
        """Return the keys that the rig names; None if it admits agents without keys."""
        if security.curve is None:
            return None
        return cls(security.curve.server_key, security.curve.authorised_keys)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one session; durations in nanoseconds."""

    run_id: str
    bind: str
    """ZeroMQ endpoint, such as "tcp://127.0.0.1:5555"."""
    curve: CurveServer | None = None
    lab: str = ""
    """The lab that the rig names, if its agents may be missing because it is down; "" otherwise."""
    insecure: bool = False
    """Listen beyond loopback without encryption and without authenticating peers."""
    heartbeat_ns: int = 500 * NS_PER_MS
    """Twice a second: a silent agent is known within a second, before engines give up on their queue pairs."""
    lost_after_ns: int = LOST_AFTER_NS
    """Silence on an open connection after which a peer counts as lost."""
    pause_ns: int = 10 * NS_PER_S
    """Longest pause of the controller or of a run's process by which deadlines move."""
    gather_timeout_ns: int = 60 * NS_PER_S
    """Long, since people start agents by hand."""
    load_timeout_ns: int = 60 * NS_PER_S
    """Time to send a large assignment and to open thousands of sockets."""
    connect_timeout_ns: int = 15 * NS_PER_S
    """An engine's probes end by themselves within about 2 s."""
    arm_timeout_ns: int = 5 * NS_PER_S
    """Counted from the last clock sample that was still wanted."""
    start_lead_ns: int = 500 * NS_PER_MS
    """Time from the start order to the start. A late order ends the run, so this exceeds the scheduling delays of a
    busy host; it only delays the start."""
    start_lead_each_ns: int = 4 * NS_PER_MS
    """Added for every agent: their orders leave one after another."""
    report_each_ns: int = 4 * NS_PER_MS
    """Interval between two reports over all agents: more frequent ones than a controller handles would pile up."""
    stall_timeout_ns: int = 5 * NS_PER_S
    """Longer than an engine needs to give up on a queue pair by itself."""
    waits_timeout_ns: int = 2 * NS_PER_S
    """Longest time for agents to answer what they wait for."""
    collect_timeout_ns: int = 10 * NS_PER_S
    """Counted from the last message of any agent that still hands over records."""
    break_timeout_ns: int = 3 * NS_PER_S
    """The same after a failure: records are worth a wait, but a short one."""
    dismiss_timeout_ns: int = 500 * NS_PER_MS
    """Longest time for agents to acknowledge the end; closing a connection sooner may lose its last message."""
    spool_dir: Path | None = None
    """Directory in which records are kept as they arrive; None keeps them in memory."""
    standing_by: tuple[str, ...] = ()
    """Agents of the rig without a rank in this run. Their Hello is not answered, so they keep asking until a run needs them."""

    def welcome(self, agents: int) -> Welcome:
        """Return the Welcome for each of `agents` agents."""
        # Often enough to distinguish a stall from missing reports.
        report_ns = max(REPORT_NS, min(agents * self.report_each_ns, self.stall_timeout_ns // 5))
        return Welcome(self.heartbeat_ns, self.lost_after_ns, report_ns=report_ns)

    def lead_ns(self, agents: int) -> int:
        """Return the time from the start orders to the start of a run over `agents` agents, in nanoseconds."""
        return self.start_lead_ns + agents * self.start_lead_each_ns


def check_exposure(settings: SessionSettings) -> None:
    """Raise `ConfigError` if any peer on the network could join the session without authentication."""
    if is_loopback(settings.bind) or settings.curve is not None or settings.insecure:
        return
    raise ConfigError(
        Problem(
            settings.bind,
            "is reachable from other machines, but neither keys nor insecure: true are configured",
            "give the controller a secret key and a directory of agent keys (etloop keys make, etloop keys allow), "
            "or set insecure: true if everybody on this network may send and receive traffic",
        )
    )
