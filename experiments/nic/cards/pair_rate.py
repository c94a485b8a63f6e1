"""The rate of a modelled card's queue pair: how notifications cut it, and how it increases. Pure; time is an argument.

The three stages of an increase are those of DCQCN (Zhu et al., SIGCOMM 2015, section 5.1): towards the rate before the cut,
beyond it by small steps, and by large ones. Raises are triggered by a timer alone, not by bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etloop.experiments.nic.cards.model import NicModel

_THERE: Final = 0.999
"""Share of a rate above which it counts as reached."""


class PairRate:
    """Current rate limit of a queue pair."""

    def __init__(self, model: NicModel) -> None:
        self._model = model
        self.bps = self._target_bps = float(model.line_bps)
        self._alpha, self._notified_ns = 1.0, 0
        self._notifications = self._raises = 0

    def cut(self, now_ns: int) -> int:
        """Cut the rate for a notification; return the number that identifies its raises."""
        model = self._model
        if self._notifications:
            self._alpha *= 0.5 ** ((now_ns - self._notified_ns) / model.alpha_half_ns)
        self._target_bps, self._notified_ns = self.bps, now_ns
        self.bps *= 1 - model.cnp_cut * self._alpha
        self._notifications, self._raises = self._notifications + 1, 0
        return self._notifications

    def climb(self, number: int) -> bool:
        """Raise the rate once, unless a later notification came; return whether another raise follows."""
        if number != self._notifications:
            return False
        self._raises += 1
        self._target_bps = min(self._target_bps + self._step_bps(), self._model.line_bps)
        self.bps += self._model.cnp_climb * (self._target_bps - self.bps)
        is_there = self.bps >= _THERE * self._target_bps
        return not is_there or (self._target_bps < self._model.line_bps and self._model.additive_bps > 0)

    def _step_bps(self) -> int:
        model = self._model
        if self._raises <= model.fast_raises:
            return 0
        is_large = 0 < model.additive_raises < self._raises - model.fast_raises
        return model.hyper_bps if is_large else model.additive_bps
