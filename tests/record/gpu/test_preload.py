"""The libraries in CUDA's place: built for what a PyTorch imports, refused for an untried version of CUDA."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.record.gpu.preload import TorchBuild, build_preload, environment_of, inspect_torch

IMPORTS = "cudaGetDeviceCount cudaStreamWaitEvent cudaNewerThanThis __cudaRegisterFunction".split()


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the libraries for a PyTorch of one library, which imports an unknown function."""
    directory = tmp_path_factory.mktemp("torch")
    (directory / "lib").mkdir()
    source = directory / "torch.c"
    calls = "".join(
        f"extern int {name}(void); int use_{name}(void) {{ return {name}(); }}\n" for name in IMPORTS
    )
    source.write_text(calls)
    library = directory / "lib" / "libtorch_cuda.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return build_preload(TorchBuild("2.14.1+cu130", "13.0", None, str(directory)), directory)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (TorchBuild("2.9.0+cu126", "12.6", None, "/torch"), ("CUDA 12.6", "CUDA 13", "--cpu")),
        (TorchBuild("3.0.0+cu140", "14.0", None, "/torch"), ("CUDA 14.0",)),
        (TorchBuild("2.14.1+rocm7", None, "7.0", "/torch"), ("ROCm 7.0", "--cpu")),
    ],
)
def test_another_cuda_is_refused_by_its_name(
    build: TorchBuild, words: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_preload(build, tmp_path)
    assert all(word in str(caught.value) for word in words)


def test_a_function_without_an_answer_returns_an_error(preload: Path) -> None:
    library = ctypes.CDLL(str(preload))
    assert library.cudaNewerThanThis() == 801
    library.cudaGetErrorString.restype = ctypes.c_char_p
    assert b"no answer" in library.cudaGetErrorString(801)


def test_events_are_logged_in_order(preload: Path) -> None:
    class Entry(ctypes.Structure):
        _fields_ = (("what", ctypes.c_uint32), ("event", ctypes.c_uint32), ("stream", ctypes.c_uint64))

    library = ctypes.CDLL(str(preload))
    library.etloop_log.argtypes = (ctypes.c_uint64, ctypes.POINTER(Entry), ctypes.c_int)
    logged = ctypes.c_uint64.in_dll(library, "etloop_logged")
    first = logged.value
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cudaStreamCreateWithPriority(ctypes.byref(stream), 0, -1) == 0
    assert library.cudaEventCreateWithFlags(ctypes.byref(event), 0) == 0
    assert library.cudaEventRecord(event, None) == 0
    assert library.cudaStreamWaitEvent(stream, event, 0) == 0
    assert library.cudaDeviceSynchronize() == 0
    entries = (Entry * 8)()
    assert library.etloop_log(first, entries, 8) == 3
    assert stream.value is not None
    assert stream.value > 2
    assert [(entry.what, entry.stream) for entry in entries[:3]] == [(1, 0), (2, stream.value), (5, 0)]
    assert entries[0].event == entries[1].event == event.value
    for _ in range(70_000):
        library.cudaDeviceSynchronize()
    assert library.etloop_log(first, entries, 8) == -1


def test_memory_is_given_and_taken_back(preload: Path) -> None:
    library = ctypes.CDLL(str(preload))
    memory = ctypes.c_void_p()
    assert library.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(1 << 40)) == 0
    assert memory.value is not None
    ctypes.memset(memory.value + (1 << 39), 7, 1)
    assert library.cudaFree(memory) == 0


def test_the_libraries_come_before_those_of_cuda(preload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    environment = environment_of(preload, 4)
    assert environment["LD_PRELOAD"] == str(preload)
    assert environment["LD_LIBRARY_PATH"] == f"{preload.parent}:/own"
    assert (preload.parent / "libcuda.so.1").exists()


def test_an_interpreter_without_pytorch_has_no_build(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    script.chmod(0o755)
    assert inspect_torch(str(script)) is None
    with pytest.raises(ConfigError, match="cannot be started"):
        inspect_torch(str(tmp_path / "none"))
