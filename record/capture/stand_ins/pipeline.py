"""torch.distributed.pipelining: shapes of stages pass through the channel, and the passes that infer them are not recorded.

Stages vote, as PyTorch's do, whether all of them state their shapes; otherwise shapes are inferred.
"""

from __future__ import annotations

from typing import Any

from torch import distributed
from torch.distributed.pipelining import stage as stages
from torch.utils._python_dispatch import _disable_current_modes

from ..channel import Channel
from ..recorder import Record


class _Vote:
    """Whether all stages so far state their shapes."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def item(self) -> int:
        """Return 1 for stated shapes, 0 for shapes that are inferred."""
        return int(self.value)


def install(record: Record, channel: Channel) -> None:
    """Replace the exchange of metadata between stages."""
    kind = stages.PipelineStage
    counts: dict[tuple[str, int, int], int] = {}

    def key_of(source: int, destination: int, kind: str = "stage") -> str:
        counts[kind, source, destination] = counts.get((kind, source, destination), -1) + 1
        return f"{kind}{source}to{destination}-{counts[kind, source, destination]}"

    original_init = stages._PipelineStageBase.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        group = self.group or distributed.distributed_c10d._get_default_group()
        record.events.write(kind="staged", group=group.group_name)

    stages._PipelineStageBase.__init__ = init

    def send_meta(self: Any, meta: Any, dst_stage: int) -> None:
        with _disable_current_modes():
            channel.put(key_of(self.stage_index, dst_stage), meta)

    def receive_meta(self: Any, src_stage: int) -> Any:
        with _disable_current_modes():
            return channel.get(key_of(src_stage, self.stage_index), f"pipeline stage {src_stage}")

    def pass_on(self: Any, vote: _Vote, step: int) -> None:
        """Hand a vote to the next stage, or the one before, unless this rank has it."""
        neighbour = self.stage_index + step
        if 0 <= neighbour < self.num_stages and not self._is_same_rank(neighbour):
            channel.put(key_of(self.stage_index, neighbour, "vote"), vote.value)

    def take(self: Any, own: _Vote | None, step: int) -> _Vote:
        """Return the vote of the stage before, or the next one."""
        neighbour = self.stage_index + step
        if not 0 <= neighbour < self.num_stages or self._is_same_rank(neighbour):
            return own or _Vote(True)
        return _Vote(channel.get(key_of(neighbour, self.stage_index, "vote"), f"pipeline stage {neighbour}"))

    def vote_forward(self: Any, has_backward: bool, received_acc: _Vote | None = None) -> _Vote:
        with _disable_current_modes():
            is_stated = not stages.InferenceMode.needs_dynamic(self._user_meta, has_backward)
            vote = _Vote(take(self, received_acc, -1).value and is_stated)
            pass_on(self, vote, 1)
        return vote

    def vote_backward(self: Any, received_result: _Vote | None = None) -> _Vote:
        with _disable_current_modes():
            vote = take(self, received_result, 1)
            pass_on(self, vote, -1)
        return vote

    kind._send_meta, kind._recv_meta = send_meta, receive_meta
    kind._warmup_forward_vote, kind._warmup_backward_result = vote_forward, vote_backward
    for name in ("_forward_metadata_inference", "_backward_metadata_inference"):
        original = getattr(kind, name)

        def infer(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            record.note(
                "pipeline shape inference (a forward and backward pass, and messages of shapes) is left out"
            )
            with record.suspend():
                return _original(self, *args, **kwargs)

        setattr(kind, name, infer)
