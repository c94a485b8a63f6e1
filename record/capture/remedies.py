"""Remedies for the errors of PyTorch that scripts commonly meet on fake tensors."""

from __future__ import annotations

from typing import Final

_REMEDIES: Final = (
    (
        ("not compiled with CUDA",),
        "this is a CPU-only build of PyTorch: name the Python of a CUDA build with --python, or use torch.cuda.is_available()",
    ),
    (
        ("has no answer for", "NVIDIA driver", "drivers"),
        "CUDA graphs, Triton's kernels and shared memory are not recorded: switch them off, use --hook FILE, or --cpu",
    ),
    (
        ("DataDependentOutput", "DynamicOutputShape", "data-dependent"),
        "use operators with fixed shapes, declare counts with --tokens, or answer the operator in --hook FILE",
    ),
    (
        ("AssumedInteger",),
        "an integer that was read of a tensor has no data: declare it with --item FILE:LINE=VALUE, or counts with --tokens",
    ),
    ((".numpy()", "numpy() is not supported"), "keep values in tensors, or replace the call in --hook FILE"),
    (
        ("pickle", "Pickling"),
        "save with torch.save or torch.distributed.checkpoint, or replace the call in --hook FILE",
    ),
)


def remedy_for(message: str) -> str:
    """Return the remedy for an error message."""
    for words, remedy in _REMEDIES:
        if any(word in message for word in words):
            return remedy
    return (
        "run the script on real devices or gloo first; replace what fake tensors cannot carry in --hook FILE"
    )
