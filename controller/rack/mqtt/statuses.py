"""Converts the rack's values to messages. Pure."""

from __future__ import annotations

from etloop.contract.model.capabilities import UNKNOWN, Capabilities
from etloop.controller.rack.agent_pool import AgentPresence
from etloop.controller.rack.job import Job
from etloop.controller.rack.mqtt.message_parts import FORMAT
from etloop.controller.rack.mqtt.messages import AgentStatus, HostStatus, InterfaceStatus, JobStatus
from etloop.controller.rack.mqtt.reservation_messages import ReservationStatus
from etloop.controller.rack.transfers.links import Links
from etloop.controller.rack.users.reservations import Reservation, time_text


def job_status(job: Job, links: Links, waits_for: str = "", requeued_as: str = "") -> JobStatus:
    """Return a job's message; `waits_for` is why it has not started, `requeued_as` the job that runs it again."""
    request = job.request
    return JobStatus(
        FORMAT,
        job.job_id,
        job.number,
        job.state,
        request.priority,
        job.submitted_at,
        job.started_at,
        job.ended_at,
        job.leased,
        None if job.exit_code is None else int(job.exit_code),
        job.reason or waits_for,
        job.run_directory,
        request.client_key,
        request.submitter,
        dict(request.labels),
        request.requeue_of,
        request.owner,
        requeued_as,
        links.results(job),
        links.log(job),
        request.scenario_name,
    )


def reservation_status(made: Reservation) -> ReservationStatus:
    """Return a reservation's message."""
    times = time_text(made.begins_ns), time_text(made.ends_ns)
    return ReservationStatus(made.reservation_id, made.ports, made.user, *times, made.who, made.reason)


def agent_status(presence: AgentPresence) -> AgentStatus:
    """Return an agent's message."""
    hello = presence.hello
    return AgentStatus(
        FORMAT,
        presence.name,
        presence.idle_slots + presence.leased_slots > 0,
        presence.idle_slots > 0,
        presence.leased_slots,
        hello.host if hello is not None else "",
        dict(hello.versions) if hello is not None else {},
        presence.clock.error_ns if presence.clock is not None else None,
        _host_status(hello.capabilities) if hello is not None and hello.capabilities != UNKNOWN else None,
    )


def _host_status(host: Capabilities) -> HostStatus:
    return HostStatus(
        host.cores,
        tuple(
            InterfaceStatus(port.name, port.addresses, port.link_bps, port.mtu_bytes, port.driver, port.up)
            for port in host.interfaces
        ),
        host.backends,
        tuple(f"{device.name}/{device.interface}" for device in host.roce_devices),
        host.clock_source,
        host.ptp_clocks,
        host.governor,
        host.privileges,
        host.receive_buffer_bytes,
        host.open_files,
    )
