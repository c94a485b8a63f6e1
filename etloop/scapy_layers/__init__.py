"""RoCEv2, MRC and UET layers for Scapy, for scripts that build, send and check packets (docs/scapy.md).

    from etloop.scapy_layers import BTH, RETH, icrc_ok

Importing this package extends `scapy.contrib.roce` and binds the ports 4791, 4971 and 4793. It needs `pip install
'etloop[scapy]'`, and no other part of ETLoop imports it.
"""

from __future__ import annotations

from etloop.runtime.installed_packages import missing_package

try:
    from scapy.contrib.roce import AETH, BTH, GRH, CNPPadding, cnp

    from etloop.scapy_layers.icrc import icrc_of, icrc_ok
    from etloop.scapy_layers.mrc import EETH, ERTH, METH, MRC, NETH, PETH, SETH, TSETH, CCState
    from etloop.scapy_layers.roce import (
        DETH,
        IETH,
        RETH,
        XRCETH,
        AtomicAckETH,
        AtomicETH,
        ImmDt,
        SelectiveBitmap,
    )
    from etloop.scapy_layers.transport import RocePad
    from etloop.scapy_layers.uet import (
        UET,
        UETAck,
        UETAckState,
        UETCcxState,
        UETControl,
        UETCreditState,
        UETCreditTarget,
        UETIdempotent,
        UETMediumRequest,
        UETNack,
        UETNsccState,
        UETRequest,
        UETResponse,
        UETResponseWithData,
        UETResponseWithSmallData,
        UETSmallRequest,
        UETStandardRequest,
        UETUnreliable,
    )
except ModuleNotFoundError as _error:
    _missing = missing_package(_error, "etloop.scapy_layers")
    if _missing is None:
        raise
    raise _missing from None

__all__ = [
    "AETH",
    "BTH",
    "DETH",
    "EETH",
    "ERTH",
    "GRH",
    "IETH",
    "METH",
    "MRC",
    "NETH",
    "PETH",
    "RETH",
    "SETH",
    "TSETH",
    "UET",
    "XRCETH",
    "AtomicAckETH",
    "AtomicETH",
    "CCState",
    "CNPPadding",
    "ImmDt",
    "RocePad",
    "SelectiveBitmap",
    "UETAck",
    "UETAckState",
    "UETCcxState",
    "UETControl",
    "UETCreditState",
    "UETCreditTarget",
    "UETIdempotent",
    "UETMediumRequest",
    "UETNack",
    "UETNsccState",
    "UETRequest",
    "UETResponse",
    "UETResponseWithData",
    "UETResponseWithSmallData",
    "UETSmallRequest",
    "UETStandardRequest",
    "UETUnreliable",
    "cnp",
    "icrc_of",
    "icrc_ok",
]
