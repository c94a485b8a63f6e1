"""Remedies for the errors of PyTorch that scripts commonly meet on fake tensors."""

from __future__ import annotations

from typing import Final

_REMEDIES: Final = (
    (
        ("NVIDIA driver", "not compiled with CUDA", "cuda"),
        "a script is recorded on the CPU: take the device from an argument or from torch.cuda.is_available()",
    ),
    (
        ("DataDependentOutput", "DynamicOutputShape", "data-dependent"),
        "use operators with fixed shapes, declare counts with --tokens, or answer the operator in --hook FILE",
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
