"""A lab that runs bring up for themselves: it is kept as long as its topology stays the same, and ends with them."""

from __future__ import annotations

import contextlib
import os

from etloop.contract.base.errors import InputError
from etloop.controller.run.prepare import InputFile, read_device_file
from etloop.experiments.sweep.file import LabWish
from etloop.lab.client import lab_down, lab_up
from etloop.lab.plan import plan_lab, rig_text
from etloop.lab.request import LabOrder


class OwnLab:
    """The current lab; another topology replaces it."""

    def __init__(self, wish: LabWish, *, allow_overcommit: bool, allow_plugins: bool) -> None:
        self._wish = wish
        self._allow_overcommit = allow_overcommit
        self._allow_plugins = allow_plugins
        self._name = f"sweep-{os.getpid()}"
        self._text: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the lab in its commands and timelines."""
        return self._name

    def rig(self, topology: InputFile) -> InputFile:
        """Return the rig of the lab's agents. Raises an `InputError` for a topology that cannot be a lab."""
        wish = self._wish
        device = read_device_file(topology)
        plan = plan_lab(device.topology, mtu_bytes=wish.mtu_bytes, addresses=wish.addresses, bind=wish.bind)
        text = rig_text(plan, backend=wish.backend, lab=self._name)
        return InputFile(topology.path.with_name("rig.yaml"), text.encode(), f"rig made of {topology.source}")

    def up(self, topology: InputFile) -> None:
        """Bring up the lab of a topology, if it is not up. Raises an `InputError` if that fails."""
        text = topology.read().decode("utf-8-sig")
        if text == self._text:
            return
        self.down()
        self._text = text  # before it is up: whatever interrupts that, `down` looks for it
        lab_up(
            LabOrder(
                name=self._name,
                topology=text,
                source=str(topology.path),
                mtu_bytes=self._wish.mtu_bytes,
                addresses=self._wish.addresses,
                bind=self._wish.bind,
                backend=self._wish.backend,
                agents=True,
                allow_plugins=self._allow_plugins,
                allow_overcommit=self._allow_overcommit,
                owner=os.getpid(),
            )
        )

    def down(self) -> None:
        """End the lab, if one is up."""
        if self._text is None:
            return
        self._text = None
        with contextlib.suppress(InputError):
            lab_down(self._name)
