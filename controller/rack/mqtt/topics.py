"""The topics of the rack API, `etloop/v1/<rack>/...`: which message is where. Pure."""

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
"""Wildcards, and what MQTT 5 (1.5.4) lets a broker end the connection for."""


def is_job_id(text: str) -> bool:
    """Whether a job could have that id."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one rack. Requests are subscribed to by the controller; all others it publishes, retained."""

    rack: str
    user: str = ""
    """As whom requests are asked: the broker's ACL lets an account write below `as/` and its own name only."""

    @property
    def root(self) -> str:
        """What all topics of the rack begin with."""
        return f"etloop/v1/{self.rack}"

    @property
    def asked(self) -> str:
        """What the topics of requests begin with."""
        return f"{self.root}/as/{self.user}" if self.user else self.root

    @property
    def submit(self) -> str:
        """`SubmitRequest`."""
        return f"{self.asked}/jobs/submit"

    @property
    def list(self) -> str:
        """`ListRequest`."""
        return f"{self.asked}/jobs/list"

    @property
    def inventory(self) -> str:
        """`InventoryRequest`."""
        return f"{self.asked}/agents/inventory"

    @property
    def cancels(self) -> str:
        """`CancelRequest` of any job, as a filter."""
        return f"{self.asked}/jobs/+/cancel"

    @property
    def service(self) -> str:
        """`ServiceRequest`."""
        return f"{self.asked}/ports/service"

    @property
    def pause(self) -> str:
        """`PauseRequest`."""
        return f"{self.asked}/queue/pause"

    @property
    def reserve(self) -> str:
        """`ReserveRequest`."""
        return f"{self.asked}/ports/reserve"

    @property
    def unreserve(self) -> str:
        """`UnreserveRequest`."""
        return f"{self.asked}/ports/unreserve"

    @property
    def changes(self) -> str:
        """`ChangeRequest` of any job, as a filter."""
        return f"{self.asked}/jobs/+/change"

    @property
    def controller_status(self) -> str:
        """`ControllerStatus`."""
        return f"{self.root}/controller/status"

    def cancel(self, job_id: str) -> str:
        """`CancelRequest`."""
        return f"{self.asked}/jobs/{job_id}/cancel"

    def change(self, job_id: str) -> str:
        """`ChangeRequest`."""
        return f"{self.asked}/jobs/{job_id}/change"

    def state(self, job_id: str) -> str:
        """`JobStatus`."""
        return f"{self.root}/jobs/{job_id}/state"

    def progress(self, job_id: str) -> str:
        """`ProgressStatus`."""
        return f"{self.root}/jobs/{job_id}/progress"

    def result(self, job_id: str) -> str:
        """`ResultStatus`."""
        return f"{self.root}/jobs/{job_id}/result"

    def agent_status(self, agent: str) -> str:
        """`AgentStatus`."""
        return f"{self.root}/agents/{agent}/status"

    def of_user(self, topic: str) -> Topics:
        """Return these topics as the user asks on them below whose name `topic` is; without one where it is below no name."""
        head = f"{self.root}/as/"
        name = topic[len(head) :].partition("/")[0] if topic.startswith(head) else ""
        return Topics(self.rack, name)

    def job_of_cancel(self, topic: str) -> str | None:
        """The job that a cancel topic names; None if it is no such topic, or names what can be no job."""
        return self._job_before("/cancel", topic)

    def job_of_change(self, topic: str) -> str | None:
        """The job that a change topic names; None as above."""
        return self._job_before("/change", topic)

    def _job_before(self, tail: str, topic: str) -> str | None:
        head = f"{self.asked}/jobs/"
        if not (topic.startswith(head) and topic.endswith(tail)):
            return None
        job_id = topic[len(head) : -len(tail)]
        return job_id if is_job_id(job_id) else None

    def may_respond_on(self, topic: str) -> bool:
        """Whether a response topic is one that the controller lends its voice to.

        Topics of rack APIs are for what controllers say and hear there: an answer on one of them would be taken for the
        state of a job, or for a request. Of those, only `replies/` of this rack are for answers.
        """
        if not topic or len(topic.encode()) > _LONGEST_TOPIC or topic[0] == "$" or _UNPUBLISHED.search(topic):
            return False
        return topic.startswith(f"{self.root}/replies/") or not topic.startswith("etloop/")
