"""What a session needs to know besides the plan: where it listens, who may join, and how long it waits for what.

Every wait of a session has its limit here, with the reason for its default.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.endpoint import is_loopback
from etloop.contract.protocol.messages import REPORT_NS, Welcome

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Security


@dataclass(frozen=True, slots=True)
class CurveServer:
    """Keys of an encrypted control connection, as files (`runtime.curve_keys`)."""

    secret_key_file: Path
    """The controller's own certificate (`.key_secret`)."""
    agent_keys_dir: Path
    """The allow-list: public certificates (`.key`) of the agents that may connect."""

    @classmethod
    def of(cls, security: Security) -> CurveServer | None:
        """What the rig says of it; None where agents are admitted without keys."""
        if security.server_key is None or security.authorised_keys is None:
            return None
        return cls(security.server_key, security.authorised_keys)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one session; durations in nanoseconds."""

    run_id: str
    bind: str
    """ZeroMQ endpoint, such as "tcp://127.0.0.1:5555"."""
    curve: CurveServer | None = None
    lab: str = ""
    """The lab that the rig names, if its agents may be missing because it is down."""
    insecure: bool = False
    """Listen beyond loopback without encryption and without knowing who connects."""
    heartbeat_ns: int = 500 * NS_PER_MS
    """Six heartbeats fit into `lost_after_ns`, so that a few late ones do not end a run."""
    lost_after_ns: int = 3 * NS_PER_S
    """Silence after which a peer counts as gone: far above a scheduler's hiccup, short enough to end a run in seconds."""
    gather_timeout_ns: int = 60 * NS_PER_S
    """People start agents by hand."""
    load_timeout_ns: int = 60 * NS_PER_S
    """A large assignment travels and thousands of sockets are opened."""
    connect_timeout_ns: int = 15 * NS_PER_S
    """An engine's probes end by themselves within about 2 s."""
    arm_timeout_ns: int = 5 * NS_PER_S
    """Since the last clock sample that was wanted."""
    start_lead_ns: int = 500 * NS_PER_MS
    """From the start order to the start. An order that comes late ends the run, so this outlasts the hiccups of a busy
    host; it costs nothing but patience."""
    start_lead_each_ns: int = 4 * NS_PER_MS
    """More for every agent: their orders leave one after another."""
    report_each_ns: int = 4 * NS_PER_MS
    """Between two reports of any agents, if they come evenly: more a second than a controller takes would pile up before it."""
    stall_timeout_ns: int = 5 * NS_PER_S
    """Longer than an engine needs to give up on a queue pair by itself."""
    waits_timeout_ns: int = 2 * NS_PER_S
    """How long agents may take to say what they wait for."""
    collect_timeout_ns: int = 10 * NS_PER_S
    """Since the last thing that came from any agent still handing over."""
    break_timeout_ns: int = 3 * NS_PER_S
    """The same after a break: records are worth waiting for, but not long."""
    dismiss_timeout_ns: int = 500 * NS_PER_MS
    """How long agents may take to acknowledge the end; a connection that closes sooner may lose its last message."""
    spool_dir: Path | None = None
    """Where what is measured is kept as it comes; None: in memory."""
    standing_by: tuple[str, ...] = ()
    """Agents of the rig that have no rank in this run. They are not answered, and go on asking until a run has use for them."""

    def welcome(self, agents: int) -> Welcome:
        """What each of so many agents is told when it joins."""
        # Often enough for a stall to be told from silence.
        report_ns = max(REPORT_NS, min(agents * self.report_each_ns, self.stall_timeout_ns // 5))
        return Welcome(self.heartbeat_ns, self.lost_after_ns, report_ns=report_ns)

    def lead_ns(self, agents: int) -> int:
        """From the start orders to the start, of a run over so many agents."""
        return self.start_lead_ns + agents * self.start_lead_each_ns


def check_exposure(settings: SessionSettings) -> None:
    """Raises `ConfigError` if the session would let anybody on the network join unseen."""
    if is_loopback(settings.bind) or settings.curve is not None or settings.insecure:
        return
    raise ConfigError(
        Problem(
            settings.bind,
            "is reachable from other machines, and neither keys are configured nor is the session declared insecure",
            "give the controller a secret key and a directory of agent keys (etloop keys make, etloop keys allow), "
            "or set insecure: true if everybody on this network may send and receive traffic",
        )
    )
