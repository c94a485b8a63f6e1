"""MSCCL programs: read, proved, and refused with the line and the step that breaks them."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError, InputError, PlanError
from etloop.traffic.collectives.msccl.proof import prove
from etloop.traffic.collectives.msccl.reader import LARGEST_TEXT_BYTES, read_msccl
from tests.support.traffic.msccl_by_hand import (
    Tb,
    chain_broadcast,
    direct_all_gather,
    direct_all_to_all,
    exchanged_all_reduce,
    program,
    ring_reduce_scatter,
)

GOOD = {
    "exchange": exchanged_all_reduce(),
    "all-gather": direct_all_gather(4),
    "all-to-all": direct_all_to_all(3),
    "reduce-scatter": ring_reduce_scatter(4),
    "broadcast": chain_broadcast(3),
}


@pytest.mark.parametrize("name", GOOD)
def test_programs_that_do_their_collective_are_proved(name: str) -> None:
    algorithm = read_msccl(GOOD[name].encode(), "good.xml")
    moves = prove(algorithm, "good.xml")
    assert len(moves.order) == sum(len(block.steps) for gpu in algorithm.gpus for block in gpu.blocks)
    assert sum(map(len, moves.sent.values())) == sum(map(len, moves.received.values())) > 0


def test_what_a_step_moves_is_known_by_its_piece() -> None:
    moves = prove(read_msccl(ring_reduce_scatter(3).encode(), "x"), "x")
    assert moves.sent == {
        (0, 0, 0): (2,),
        (0, 0, 1): (1,),
        (1, 0, 0): (0,),
        (1, 0, 1): (2,),
        (2, 0, 0): (1,),
        (2, 0, 1): (0,),
    }


UNREADABLE = {
    "no text at all": ("", "no element found"),
    "not XML": ("{}", "x.xml:1: not well-formed XML"),
    "a document type could define entities": (
        '<!DOCTYPE a [<!ENTITY b "c">]><algo/>',
        "x.xml:1: a document type (a) is not supported; remove the DOCTYPE",
    ),
    "another root": ("<gpu id='0'/>", "x.xml:1: <gpu> is inside <>; put it into <algo>"),
    "an element of another format": ("<algo><x/></algo>", "x.xml:1: <x> is not an element of MSCCL"),
    "a missing attribute": ("<algo name='a' proto='LL' coll='allreduce'/>", "x.xml:1: <algo> has no ngpus"),
    "an unknown attribute": (
        program("allreduce", 2, [(), ()], pieces=3),
        "<algo> has the unknown attribute pieces; write coll,",
    ),
    "a collective that is none": (
        program("allscatter", 2, [(), ()]),
        'coll is "allscatter"; write one of allreduce, allgather',
    ),
    "a protocol that is none": (program("allreduce", 2, [(), ()], proto="LL64"), 'proto is "LL64"; write one of'),
    "a number that is none": (
        program("allreduce", 2, [(), ()], nchannels="four"),
        'nchannels is "four"; write a whole number from 1 to 64',
    ),
    "a number that only Python takes": (program("allreduce", 2, [(), ()], nchannels="1_0"), 'nchannels is "1_0"'),
    "a huge number": (program("allreduce", 2, [(), ()], nchunksperloop="9" * 400), "nchunksperloop is"),
    "GPUs that are not there": (
        program("allreduce", 2, [(), ()], ngpus=3),
        "ngpus is 3, but there are 2 <gpu> elements; make both equal",
    ),
    "a step type that is none": (
        program("allreduce", 1, [(Tb(1, -1, ["send i0 i0"]),), ()]),
        'x.xml:4: type is "send"; write one of s, r, rcs',
    ),
    "a buffer that is none": (
        program("allreduce", 1, [(Tb(1, -1, ["s x0 i0"]),), ()]),
        'srcbuf is "x"; write one of i, o, s',
    ),
    "steps out of order": (
        GOOD["exchange"].replace('s="0"', 's="7"', 1),
        'x.xml:4: s is "7"; write 0',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_refused_with_its_line(case: str) -> None:
    text, printed = UNREADABLE[case]
    with pytest.raises(ConfigError, match=re.escape(printed)):
        read_msccl(text.encode(), "x.xml")


def test_all_mistakes_are_told_together_and_not_without_end() -> None:
    text = program("allreduce", 2, [(Tb(1, -1, ["send i0 i0", "s x0 i0"]),), ()], proto="x")
    with pytest.raises(ConfigError) as caught:
        read_msccl(text.encode(), "x.xml")
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError) as caught:
        read_msccl(program("allreduce", 1, [(Tb(1, -1, ["send"] * 1000),), ()]).encode(), "x.xml")
    assert len(caught.value.problems) == 20


def test_a_file_too_large_is_not_even_parsed() -> None:
    with pytest.raises(ConfigError, match=f"keep it under {LARGEST_TEXT_BYTES} bytes"):
        read_msccl(b" " * (LARGEST_TEXT_BYTES + 1), "x.xml")


def pair(first: list[str], second: list[str], *, inplace: int = 1, scratch: int = 0) -> str:
    """Two GPUs with one thread block each, in place, one chunk."""
    blocks = [(Tb(1, 1, first),), (Tb(0, 0, second),)]
    return program("allreduce", 1, blocks, scratch=scratch, inplace=inplace)


BROKEN = {
    "both wait for the other": (
        pair(["rrc i0 i0", "s i0 i0"], ["rrc i0 i0", "s i0 i0"]),
        "x.xml: line 4: GPU 0, thread block 0, step 0 waits for a message from GPU 1; reorder the steps, or",
    ),
    "a send that nobody receives": (
        pair(["s i0 i0", "r i0 i0", "s i0 i0"], ["rrc i0 i0", "s i0 i0"]),
        "GPU 0 sends 1 messages to GPU 1 on channel 0 that it does not receive",
    ),
    "a contribution added twice": (
        pair(["s i0 i0", "rrc i0 i0", "s i0 i0"], ["rrc i0 i0", "s i0 i0", "rrc i0 i0"]),
        "step 1 adds the contribution of GPU 0 to piece 0 a second time",
    ),
    "a contribution that is missing": (
        pair(["s i0 i0", "r i0 i0"], ["r i0 i0", "s i0 i0"]),
        "GPU 0 ends with piece 0 without the contribution of GPU 1 at output 0, expected piece 0",
    ),
    "a result that something else is put over": (
        program(
            "allgather",
            2,
            [(Tb(-1, -1, [f"cpy i0 o{own}"]), Tb(1 - own, 1 - own, [f"s i0 o{own}", "r o0 o0"])) for own in range(2)],
        ),
        "line 8: GPU 0, thread block 1, step 1 is the last to write there: GPU 0 ends with piece 1 at output 0,",
    ),
    "a result that never comes": (
        pair(["s i0 i0"], ["rrc i0 i0"], inplace=0),
        "GPU 0 ends with nothing at output 0, expected piece 0",
    ),
    "scratch is read before it is written": (
        pair(["s s0 i0"], ["r i0 i0"], scratch=1),
        "step 0 reads chunk 0 of buffer s, which holds no data",
    ),
    "chunks that do not exist": (
        pair(["s i1 i0"], ["r i0 i0"]),
        "step 0 uses chunks 1 to 1 of buffer i, which has 1",
    ),
    "no peer to send to": (
        program("allreduce", 1, [(Tb(-1, 1, ["s i0 i0"]),), (Tb(0, -1, []),)]),
        "step 0 sends, but its thread block has no peer to send to",
    ),
    "no peer to receive from": (
        program("allreduce", 1, [(Tb(1, -1, ["r i0 i0"]),), ()]),
        "step 0 receives, but its thread block has no peer to receive from",
    ),
    "a peer that is not there": (
        program("allreduce", 1, [(Tb(2, -1, []),), ()]),
        "thread block 0 sends to GPU 2, there are 2",
    ),
    "itself": (program("allreduce", 1, [(Tb(0, -1, []),), ()]), "thread block 0 sends to its own GPU"),
    "a channel that is not there": (
        program("allreduce", 1, [(Tb(1, -1, [], 1),), ()]),
        "thread block 0 is on channel 1 of 1",
    ),
    "two thread blocks on one connection": (
        program("allreduce", 1, [(Tb(1, -1, []), Tb(1, -1, [])), ()]),
        "thread block 1 sends to GPU 1 on channel 0, as thread block 0 does",
    ),
    "waiting for a thread block that is not there": (
        pair(["s i0 i0 @3.0"], ["r i0 i0"]),
        "waits for thread block 3, there are 1",
    ),
    "waiting for a step that is not there": (
        pair(["s i0 i0 @0.5"], ["r i0 i0"]),
        "waits for step 5 of thread block 0, which has 1",
    ),
    "nothing to move": (pair(["s i0 i0 0"], ["r i0 i0"]), "step 0 moves no chunk"),
    "different numbers of chunks": (
        program("allreduce", 2, [(Tb(1, -1, ["s i0 i0 2"]),), (Tb(-1, 0, ["r i0 i0"]),)]),
        "step 0 receives 1 chunks, GPU 0 sends 2 at this point",
    ),
    "chunks that do not divide": (
        program("alltoall", 3, [(), ()]),
        "nchunksperloop is 3, and the all-to-all needs a multiple of 2",
    ),
    # Without its wait the reduction may come before what it reads has arrived.
    "a race between thread blocks": (
        exchanged_all_reduce().replace('depid="1" deps="0"', 'depid="-1" deps="-1"'),
        "reads chunk 0 of buffer s, which holds no data; reorder the steps, or add waits (depid, deps)",
    ),
    # In the order of the file the copy comes first; nothing says that it does.
    "a race that the order of the file hides": (
        program(
            "broadcast",
            1,
            [
                (Tb(-1, -1, ["cpy i0 o0"]), Tb(1, -1, ["s o0 o0"])),
                (Tb(-1, 0, ["r o0 o0"]),),
            ],
        ),
        "line 7: GPU 0, thread block 1, step 0 reads chunk 0 of buffer o, which holds no data; make the step wait",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_do_its_collective_is_refused_with_its_step(case: str) -> None:
    text, printed = BROKEN[case]
    with pytest.raises(PlanError, match=re.escape(printed)):
        prove(read_msccl(text.encode(), "x.xml"), "x.xml")


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_any_single_change_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = bytearray(GOOD[name].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    # Whatever else it raises fails the test.
    with suppress(InputError):
        prove(read_msccl(bytes(text), "x.xml"), "x.xml")


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_any_other_number_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = GOOD[name]
    numbers = [match.span(1) for match in re.finditer(r'"(-?\d+)"', text)]
    first, last = data.draw(st.sampled_from(numbers))
    changed = text[:first] + str(data.draw(st.integers(-2, 9))) + text[last:]
    with suppress(InputError):
        prove(read_msccl(changed.encode(), "x.xml"), "x.xml")


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_words(text: bytes) -> None:
    with pytest.raises(ConfigError):
        read_msccl(text, "x.xml")
