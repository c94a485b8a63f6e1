"""torch.distributed.pipelining: shapes of stages pass through the channel, and the passes that infer them are not recorded."""

from __future__ import annotations

from typing import Any

from torch import distributed
from torch.distributed.pipelining import stage as stages
from torch.utils._python_dispatch import _disable_current_modes

from ..channel import Channel
from ..recorder import Record


class _Dynamic:
    """The outcome of the stages' vote: shapes are inferred."""

    def item(self) -> int:
        """Return the vote for dynamic inference."""
        return 0


def install(record: Record, channel: Channel) -> None:
    """Replace the exchange of metadata between stages."""
    kind = stages.PipelineStage
    counts: dict[tuple[int, int], int] = {}

    def key_of(source: int, destination: int) -> str:
        counts[source, destination] = counts.get((source, destination), -1) + 1
        return f"stage{source}to{destination}-{counts[source, destination]}"

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

    def vote(self: Any, *args: Any, **kwargs: Any) -> _Dynamic:
        return _Dynamic()

    kind._send_meta, kind._recv_meta = send_meta, receive_meta
    kind._warmup_forward_vote, kind._warmup_backward_result = vote, vote
    for name in ("_forward_metadata_inference", "_backward_metadata_inference"):
        original = getattr(kind, name)

        def infer(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            record.note(
                "pipeline shape inference (a forward and backward pass, and messages of shapes) is left out"
            )
            with record.suspend():
                return _original(self, *args, **kwargs)

        setattr(kind, name, infer)
