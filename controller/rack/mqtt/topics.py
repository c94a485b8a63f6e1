"""The topics of the rack API, `etloop/v1/<rack>/...`: which topic carries which message. Pure."""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

_LONGEST_TOPIC: Final = 1024
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UNPUBLISHED: Final = re.compile(
    "[+#\\x00-\\x1f\\x7f-\\x9f\ufdd0-\ufdef"
    + "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
    + "]"
)
"""Wildcards, and characters for which a broker may close the connection (MQTT 5, 1.5.4)."""


def is_job_id(text: str) -> bool:
    """Return whether a text has the form of a job id."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one rack. The controller subscribes to requests, and publishes all other topics, retained."""

    rack: str
    user: str = ""
    """User of the requests: the broker's ACL restricts an account to topics below `as/` and its own name; "" without a user."""

    @property
    def root(self) -> str:
        """Return the prefix of all topics of the rack."""
        return f"etloop/v1/{self.rack}"

    @property
    def asked(self) -> str:
        """Return the prefix of the topics of requests."""
        return f"{self.root}/as/{self.user}" if self.user else self.root

    @property
    def submit(self) -> str:
        """Return the topic of `SubmitRequest`."""
        return f"{self.asked}/jobs/submit"

    @property
    def list(self) -> str:
        """Return the topic of `ListRequest`."""
        return f"{self.asked}/jobs/list"

    @property
    def inventory(self) -> str:
        """Return the topic of `InventoryRequest`."""
        return f"{self.asked}/agents/inventory"

    @property
    def cancels(self) -> str:
        """Return the filter for `CancelRequest` of any job."""
        return f"{self.asked}/jobs/+/cancel"

    @property
    def service(self) -> str:
        """Return the topic of `ServiceRequest`."""
        return f"{self.asked}/ports/service"

    @property
    def pause(self) -> str:
        """Return the topic of `PauseRequest`."""
        return f"{self.asked}/queue/pause"

    @property
    def reserve(self) -> str:
        """Return the topic of `ReserveRequest`."""
        return f"{self.asked}/ports/reserve"

    @property
    def unreserve(self) -> str:
        """Return the topic of `UnreserveRequest`."""
        return f"{self.asked}/ports/unreserve"

    @property
    def changes(self) -> str:
        """Return the filter for `ChangeRequest` of any job."""
        return f"{self.asked}/jobs/+/change"

    @property
    def controller_status(self) -> str:
        """Return the topic of `ControllerStatus`."""
        return f"{self.root}/controller/status"

    def cancel(self, job_id: str) -> str:
        """Return the topic of `CancelRequest` for a job."""
        return f"{self.asked}/jobs/{job_id}/cancel"

    def change(self, job_id: str) -> str:
        """Return the topic of `ChangeRequest` for a job."""
        return f"{self.asked}/jobs/{job_id}/change"

    def state(self, job_id: str) -> str:
        """Return the topic of `JobStatus` for a job."""
        return f"{self.root}/jobs/{job_id}/state"

    def progress(self, job_id: str) -> str:
        """Return the topic of `ProgressStatus` for a job."""
        return f"{self.root}/jobs/{job_id}/progress"

    def result(self, job_id: str) -> str:
        """Return the topic of `ResultStatus` for a job."""
        return f"{self.root}/jobs/{job_id}/result"

    def agent_status(self, agent: str) -> str:
        """Return the topic of `AgentStatus` for an agent."""
        return f"{self.root}/agents/{agent}/status"

    def of_user(self, topic: str) -> Topics:
        """Return the topics of the user below whose name `topic` is; those without a user if it is below none."""
        prefix = f"{self.root}/as/"
        name = topic[len(prefix) :].partition("/")[0] if topic.startswith(prefix) else ""
        return Topics(self.rack, name)

    def job_of_cancel(self, topic: str) -> str | None:
        """Return the job id in a cancel topic; None if it is no such topic or the id is invalid."""
        return self._job_before("/cancel", topic)

    def job_of_change(self, topic: str) -> str | None:
        """Return the job id in a change topic; None if it is no such topic or the id is invalid."""
        return self._job_before("/change", topic)

    def _job_before(self, tail: str, topic: str) -> str | None:
        prefix = f"{self.asked}/jobs/"
        if not (topic.startswith(prefix) and topic.endswith(tail)):
            return None
        job_id = topic[len(prefix) : -len(tail)]
        return job_id if is_job_id(job_id) else None

    def may_respond_on(self, topic: str) -> bool:
        """Return whether the controller may publish an answer on this topic, which a client chose.

        An answer on a topic of a rack API would be taken for a job's state, or for a request. Only
        `replies/` of this rack among those topics are for answers.
        """
        if not topic or len(topic.encode()) > _LONGEST_TOPIC or topic[0] == "$" or _UNPUBLISHED.search(topic):
            return False
        return topic.startswith(f"{self.root}/replies/") or not topic.startswith("etloop/")
