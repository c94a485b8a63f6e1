"""One rank of the all-reduce that `etloop bench collective` is compared with: gloo, through torch.distributed.

Run as a process: rank, number of ranks, file to meet in, bytes, iterations. Prints when its iterations began and ended
on the monotonic clock. Torch is not a dependency of this project; if it is absent, the bench reports that and does not start
this.
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta
from typing import Any, Final

from etloop.runtime.clock import monotonic_ns

MEETING_TIMEOUT: Final = timedelta(seconds=60)
FLOAT_BYTES: Final = 4


def main(words: list[str]) -> int:
    """Run the rank that the words of a command line describe; return the exit code."""
    rank, ranks, message_bytes, iterations = (int(word) for word in words[:4])
    start_ns, end_ns = all_reduces(rank, ranks, message_bytes, iterations, words[4])
    print(start_ns, end_ns, flush=True)
    return 0


def all_reduces(
    rank: int, ranks: int, message_bytes: int, iterations: int, meeting_file: str
) -> tuple[int, int]:
    """Return start and end in ns of `iterations` all-reduces, after one that connects the ranks and is not counted."""
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting_file}", rank=rank, world_size=ranks, timeout=MEETING_TIMEOUT
    )
    tensor = torch.zeros(message_bytes // FLOAT_BYTES, dtype=torch.float32)
    distributed.all_reduce(tensor)
    distributed.barrier()
    start_ns = monotonic_ns()
    for _ in range(iterations):
        distributed.all_reduce(tensor)
    end_ns = monotonic_ns()
    distributed.barrier()
    distributed.destroy_process_group()
    return start_ns, end_ns


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
