"""The rig that a rack serves, read again when somebody asks for it (SIGHUP). A shell: a file, a thread.

One that is wrong, or that `rig_change` refuses, changes nothing: the rack goes on with the one it has, and says why in its log,
its audit trail and its state.
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
"""Who asks, in the audit trail."""
_MOST_REASON: Final = 2000


def read_rig(config: RackConfig) -> tuple[Rig, str]:
    """Return the rig of the configuration's file, and its text. Raises `ConfigError` with all its mistakes."""
    content = read_file(config.rig)
    return parse_rig(content, str(config.rig), config.rig.parent), content.decode("utf-8-sig")


class ServedRig:
    """The rig of one rack, as it is now."""

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
        """Have it read again soon; asked again meanwhile, once more after that."""
        self._asked = True

    def look(self) -> tuple[Action, ...]:
        """Goes on with what was asked for, or begins; returns at once. What the agents are to be told of another rig."""
        if self._reading is None:
            if self._asked:
                self._asked = False
                # In a thread: a rig of 1,024 ports takes longer to read than agents should wait for a heartbeat.
                self._reading = asyncio.create_task(asyncio.to_thread(read_rig, self._config))
            return ()
        if not self._reading.done():
            return ()
        done, self._reading = self._reading, None
        try:
            rig, text = done.result()
            what = self._accepted(rig)
        except (ConfigError, StoreFailed) as error:
            self._refuse(str(error))
            return ()
        return self._serve(rig, text, what)

    async def end(self) -> None:
        """Breaks off."""
        if self._reading is not None:
            await end([self._reading])

    def _accepted(self, rig: Rig) -> str:
        """Note that another rig is served, and in what it differs. Raises `ConfigError`, or `StoreFailed`, if it must not be."""
        if problems := refusals(self.now, rig, self._rack.leases()):
            raise ConfigError(*problems)
        what = difference(self.now, rig)
        self._rack.store.note(SIGNAL, "read the rig again", detail=what)
        return what

    def _serve(self, rig: Rig, text: str, what: str) -> tuple[Action, ...]:
        gone = {agent.name for agent in self.now.agents} - {agent.name for agent in rig.agents}
        self.now, self.text = rig, text
        self._rack.serve(rack_ports(rig))
        self._rack.rig = RigReading(wall_time_text(), dut=dut_name(rig))
        actions = self._hub.serve(slots_of(rig, self._config.slots))
        for name in sorted(gone):
            self._rack.publish(AgentForgotten(name))
        self._rack.publish(RackChanged(self._rack.state))
        self._log.rack("rig read again", ports=len(rig.ports), difference=what)
        return actions

    def _refuse(self, why: str) -> None:
        self._rack.rig = replace(self._rack.rig, refused=why[:_MOST_REASON])
        self._rack.publish(RackChanged(self._rack.state))
        self._log.rack("rig refused, the one before stays", why=why)
        try:
            self._rack.store.note(SIGNAL, "refused the rig", detail=why[:_MOST_REASON])
        except StoreFailed as error:
            self._log.rack("this is not in the audit trail", why=str(error))
