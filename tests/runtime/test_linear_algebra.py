"""One thread for linear algebra while numpy is loaded, and nothing left of it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from etloop.runtime.linear_algebra import one_blas_thread

VARIABLE = "OPENBLAS_NUM_THREADS"


def test_it_holds_inside_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with one_blas_thread():
        assert os.environ[VARIABLE] == "1"
    assert VARIABLE not in os.environ


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    with one_blas_thread():
        assert os.environ[VARIABLE] == "3"
    assert os.environ[VARIABLE] == "3"


def test_numpy_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    probe = (
        "import os; from etloop.runtime.linear_algebra import one_blas_thread\n"
        "with one_blas_thread(): import numpy\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    printed = subprocess.run((sys.executable, "-c", probe), check=True, capture_output=True, text=True).stdout
    assert int(printed) == 1
