"""MSCCL programs written by hand, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tb:
    """A thread block: peers and steps, each step as "type src dst [cnt] [@tb.step]", a place being "i0", "o3", "s1"."""

    send: int
    recv: int
    steps: Sequence[str]
    channel: int = 0


def step_xml(number: int, text: str) -> str:
    """One step."""
    words = text.split()
    after = words.pop()[1:].split(".") if words[-1].startswith("@") else ("-1", "-1")
    kind, src, dst, count = [*words, *("i0", "i0", "1")[len(words) - 1 :]] if len(words) < 4 else words
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" '
        f'cnt="{count}" depid="{after[0]}" deps="{after[1]}" hasdep="0"/>'
    )


def program(
    collective: str, chunks: int, gpus: Sequence[Iterable[Tb]], *, scratch: int = 0, **attributes: object
) -> str:
    """An <algo>; `attributes` are added to it or replace its own."""
    own: dict[str, object] = {
        "name": "by_hand",
        "proto": "Simple",
        "nchannels": 1,
        "nchunksperloop": chunks,
        "ngpus": len(gpus),
        "coll": collective,
        "inplace": 0,
    }
    lines = ["<algo " + " ".join(f'{key}="{value}"' for key, value in (own | attributes).items()) + ">"]
    for number, blocks in enumerate(gpus):
        lines.append(f'<gpu id="{number}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">')
        for at, block in enumerate(blocks):
            lines.append(f'<tb id="{at}" send="{block.send}" recv="{block.recv}" chan="{block.channel}">')
            lines += [step_xml(index, text) for index, text in enumerate(block.steps)]
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def exchanged_all_reduce() -> str:
    """Two GPUs swap their whole input into scratch and add it there: a receive on one thread block, local work on another."""
    return program(
        "allreduce",
        2,
        [
            (
                Tb(1 - own, -1, ["s i0 s0 2"]),
                Tb(-1, 1 - own, ["r s0 s0 2"]),
                Tb(-1, -1, ["cpy i0 o0 2", "re s0 o0 2 @1.0"]),
            )
            for own in range(2)
        ],
        scratch=2,
    )


def direct_all_gather(gpus: int) -> str:
    """Everybody sends its chunk to everybody."""
    return program(
        "allgather",
        gpus,
        [
            (
                Tb(-1, -1, [f"cpy i0 o{own}"]),
                *(
                    Tb(peer, peer, [f"s i0 o{own}", f"r o{peer} o{peer}"])
                    for peer in range(gpus)
                    if peer != own
                ),
            )
            for own in range(gpus)
        ],
    )


def direct_all_to_all(gpus: int) -> str:
    """Everybody sends everybody its part."""
    return program(
        "alltoall",
        gpus,
        [
            (
                Tb(-1, -1, [f"cpy i{own} o{own}"]),
                *(
                    Tb(peer, peer, [f"s i{peer} o{own}", f"r o{peer} o{peer}"])
                    for peer in range(gpus)
                    if peer != own
                ),
            )
            for own in range(gpus)
        ],
    )


def ring_reduce_scatter(gpus: int) -> str:
    """In place: the chunk of a GPU goes once around and is added to by everybody."""
    blocks = []
    for own in range(gpus):
        steps = [f"s i{(own - 1) % gpus} i{(own - 1) % gpus}"]
        steps += [f"rrs i{(own - hop) % gpus} i{(own - hop) % gpus}" for hop in range(2, gpus)]
        blocks.append((Tb((own + 1) % gpus, (own - 1) % gpus, [*steps, f"rrc i{own} o0"]),))
    return program("reducescatter", gpus, blocks, inplace=1)


def chain_broadcast(gpus: int) -> str:
    """Two chunks from GPU 0 down a chain, each on a channel of its own."""
    blocks: list[tuple[Tb, ...]] = []
    for own in range(gpus):
        to = own + 1 if own + 1 < gpus else -1
        verb = "s" if own == 0 else "rcs" if to >= 0 else "r"
        blocks.append(
            tuple(
                Tb(to, own - 1, [f"{verb} {'i' if own == 0 else 'o'}{c} o{c}"], channel=c) for c in range(2)
            )
            + ((Tb(-1, -1, ["cpy i0 o0 2"]),) if own == 0 else ())
        )
    return program("broadcast", 2, blocks, nchannels=2)
