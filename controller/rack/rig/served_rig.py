"""The rig in service, read again on request (SIGHUP). A shell: a file, a thread.

A rig that is invalid, or that `rig_change` refuses, changes nothing: the rack keeps the one in service, and publishes
the reason in its log, audit trail and state.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.rack.events import AgentForgotten, RackChanged
from etloop.controller.rack.rig.rig_change import (
    RigReading,
    difference,
    dut_name,
    rack_ports,
    refusals,
    slots_of,
)
from etloop.controller.rack.store.job_store import StoreFailed
from etloop.runtime.clock import wall_time_text
from etloop.runtime.task_shutdown import end

if TYPE_CHECKING:
    from etloop.controller.rack.agent_pool import Hub
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.config import RackConfig
    from etloop.controller.rack.log import RackLog
    from etloop.controller.session.actions import Action

SIGNAL: Final = "SIGHUP"
"""Name of the actor in the audit trail."""
_MOST_REASON: Final = 2000


def read_rig(config: RackConfig) -> tuple[Rig, str]:
    """Return the rig of the configured file, and its text. Raises `ConfigError` with all its mistakes."""
    content = read_file(config.rig)
    return parse_rig(content, str(config.rig), config.rig.parent), content.decode("utf-8-sig")


class ServedRig:
    """The present rig of one rack."""

    def __init__(self, config: RackConfig, rig: Rig, text: str, rack: Rack, hub: Hub, log: RackLog) -> None:
        self.now = rig
        self.text = text
        self._config = config
        self._rack = rack
        self._hub = hub
        self._log = log
        self._asked = False
        self._reading: asyncio.Task[tuple[Rig, str]] | None = None
        rack.rig = RigReading(wall_time_text(), dut=dut_name(rig))

    def ask(self) -> None:
        """Request another reading of the file; a request during a reading causes one more."""
        self._asked = True

    def look(self) -> tuple[Action, ...]:
        """Start or finish a requested reading, without waiting; return the messages to agents of a new rig."""
        if self._reading is None:
            if self._asked:
                self._asked = False
                # In a thread: reading a rig of 1,024 ports takes longer than agents should wait for a heartbeat.
                self._reading = asyncio.create_task(asyncio.to_thread(read_rig, self._config))
            return ()
        if not self._reading.done():
            return ()
        finished, self._reading = self._reading, None
        try:
            rig, text = finished.result()
            difference_text = self._accept(rig)
        except (ConfigError, StoreFailed) as error:
            self._refuse(str(error))
            return ()
        return self._serve(rig, text, difference_text)

    async def end(self) -> None:
        """Cancel a reading in progress."""
        if self._reading is not None:
            await end([self._reading])

    def _accept(self, rig: Rig) -> str:
        """Record the new rig in the audit trail and return its difference.

        Raises `ConfigError` if the rig is refused, `StoreFailed` if it cannot be recorded.
        """
        if problems := refusals(self.now, rig, self._rack.leases()):
            raise ConfigError(*problems)
        difference_text = difference(self.now, rig)
        self._rack.store.note(SIGNAL, "read the rig again", detail=difference_text)
        return difference_text

    def _serve(self, rig: Rig, text: str, difference_text: str) -> tuple[Action, ...]:
        removed_agents = {agent.name for agent in self.now.agents} - {agent.name for agent in rig.agents}
        self.now, self.text = rig, text
        self._rack.serve(rack_ports(rig))
        self._rack.rig = RigReading(wall_time_text(), dut=dut_name(rig))
        actions = self._hub.serve(slots_of(rig, self._config.limits.slots))
        for name in sorted(removed_agents):
            self._rack.publish(AgentForgotten(name))
        self._rack.publish(RackChanged(self._rack.state))
        self._log.rack("rig read again", ports=len(rig.ports), difference=difference_text)
        return actions

    def _refuse(self, why: str) -> None:
        self._rack.rig = replace(self._rack.rig, refused=why[:_MOST_REASON])
        self._rack.publish(RackChanged(self._rack.state))
        self._log.rack("rig refused, the old one stays in use", why=why)
        try:
            self._rack.store.note(SIGNAL, "refused the rig", detail=why[:_MOST_REASON])
        except StoreFailed as error:
            self._log.rack("this is not in the audit trail", why=str(error))
