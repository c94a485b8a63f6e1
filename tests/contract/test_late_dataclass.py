"""A class whose methods are made late behaves as the standard library's, in every way that it can be used."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

import pytest

from etloop.contract.base import late_dataclass

MADE: Final = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
Decorator = Callable[..., Any]


def plain(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True)
    class Flow:
        """Of bytes."""

        name: str
        message_bytes: int = 4096
        path: tuple[int, ...] = dataclasses.field(default_factory=lambda: (1, 2))
        seen: list[int] = dataclasses.field(default_factory=list, compare=False, repr=False)
        kind: ClassVar[str] = "flow"

    return Flow


def checked(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True)
    class Checked:
        lanes: int
        doubled: int = dataclasses.field(init=False, default=0)
        _port: int = dataclasses.field(default=7, kw_only=True)

        def __post_init__(self) -> None:
            if self.lanes < 1:
                raise ValueError("lanes: at least 1")
            object.__setattr__(self, "doubled", 2 * self.lanes)

    return Checked


def by_identity(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True, eq=False)
    class Rank:
        index: int

    return Rank


def of_its_own(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True)
    class Named:  # noqa: PLW1641 -- its hash is made
        name: str
        weight: int = 0

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and self.name == other.name

    return Named


def hashed(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True)
    class Hashed:
        name: str

        def __hash__(self) -> int:
            return 5

    return Hashed


def derived(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True)
    class Port:
        name: str
        link_bps: int = 10

        def doubled(self) -> int:
            return 2 * self.link_bps

    @decorator(frozen=True, slots=True)
    class Agent(Port):
        place: str = "here"

    return Agent


def empty(decorator: Decorator) -> type[Any]:
    @decorator(frozen=True, slots=True)
    class Nothing:
        pass

    return Nothing


CLASSES: Final = (
    (plain, ("a",), ("a", 4096, (1, 2), [9]), ("b",)),
    (checked, (1,), (1,), (2,)),
    (by_identity, (1,), (1,), (2,)),
    (of_its_own, ("a",), ("a", 3), ("b",)),
    (hashed, ("a",), ("a",), ("b",)),
    (derived, ("a",), ("a", 10, "here"), ("a", 10, "there")),
    (empty, (), (), ()),
)
"""A class, what one is made of, what the same one is made of, and what another one."""


def answer(asked: Callable[[], object]) -> object:
    """What is answered, or the error with its words."""
    try:
        return asked()
    except Exception as error:  # noqa: BLE001 -- which error it is, is the answer
        return type(error), str(error)


def looked_at(made: type[Any], *these: tuple[Any, ...]) -> dict[str, object]:
    """Everything that can be seen of a class from outside."""
    one, same, other = (made(*words) for words in these)
    fields = dataclasses.fields(made)
    first = fields[0].name if fields else "x"
    return {
        "text": repr(one),
        "alike": (one == same, one != same, one == other, one == object()),
        "hash": (hash(one) == hash(same), len({one, same, other})),
        "values": [getattr(other, each.name) for each in fields],
        "as dict": dataclasses.asdict(same),
        "match": made.__match_args__,
        "slots": made.__slots__,
        "fields": [(each.name, each.init, each.compare, each.kw_only) for each in fields],
        "replaced": [
            answer(lambda name=each.name: repr(dataclasses.replace(one, **{name: 1})))  # type: ignore[misc]
            for each in fields
        ],
        "copied": (repr(copy.copy(other)), repr(copy.deepcopy(other))),
        "assigned": answer(lambda: setattr(one, first, 1)) if fields else None,
        "deleted": answer(lambda: delattr(one, first)) if fields else None,
        "bad words": (
            answer(lambda: made(*range(9))),
            answer(lambda: made(*these[0], colour="red")),
            answer(made) if fields else None,
            answer(lambda: repr(made(0))) if fields else None,
        ),
        "methods": [(name, made.__dict__[name].__qualname__) for name in MADE if made.__dict__.get(name)],
    }


@pytest.mark.parametrize(("make", "one", "same", "other"), CLASSES)
def test_all_that_can_be_seen_of_it_is_the_same(
    make: Callable[[Decorator], type[Any]],
    one: tuple[Any, ...],
    same: tuple[Any, ...],
    other: tuple[Any, ...],
) -> None:
    known = looked_at(make(dataclasses.dataclass), one, same, other)
    late = make(late_dataclass.dataclass)
    assert looked_at(late, one, same, other) == known
    assert looked_at(late, one, same, other) == known, "once its methods are made, too"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (lambda one: hash(one) == hash(one), "a hash"),
        (lambda one: one == copy.copy(one), "an equality"),
        (repr, "a text"),
        (dataclasses.replace, "a constructor"),
    ],
)
def test_each_method_may_be_the_first(asked: Callable[[Any], object], sentence: str) -> None:
    known = asked(plain(dataclasses.dataclass)("a"))
    late = asked(plain(late_dataclass.dataclass)("a"))
    assert repr(late) == repr(known), sentence


def test_a_method_is_made_once_and_takes_its_place() -> None:
    late = plain(late_dataclass.dataclass)
    before = late.__dict__["__init__"]
    late("a")
    made = late.__dict__["__init__"]
    assert made is not before
    late("b")
    assert late.__dict__["__init__"] is made
    known = plain(dataclasses.dataclass).__dict__["__init__"]
    assert made.__code__.co_code == known.__code__.co_code, "what it costs is what it cost"


@late_dataclass.dataclass(frozen=True, slots=True)
class Kept:
    """Found by its name, as pickles need it."""

    name: str
    values: tuple[int, ...] = ()


def test_it_is_kept_in_pickles() -> None:
    one = Kept("a", (1, 2))
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    "words", [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True, "order": True}]
)
def test_all_others_are_the_standard_librarys(words: dict[str, bool]) -> None:
    decorators: tuple[Decorator, ...] = (late_dataclass.dataclass, dataclasses.dataclass)
    late, known = (
        made(**words)(type("Other", (), {"__annotations__": {"value": "int"}})) for made in decorators
    )
    assert late.__init__.__code__.co_code == known.__init__.__code__.co_code
    assert [name for name in MADE if name in late.__dict__] == [
        name for name in MADE if name in known.__dict__
    ]


def test_a_constructor_that_takes_what_is_no_field_is_the_standard_librarys() -> None:
    @late_dataclass.dataclass(frozen=True, slots=True)
    class Scaled:
        value: int
        by: dataclasses.InitVar[int] = 3

        def __post_init__(self, by: int) -> None:
            object.__setattr__(self, "value", self.value * by)

    assert (Scaled(2).value, Scaled(2, 5).value) == (6, 10)


@pytest.mark.parametrize(
    "change", [lambda one: setattr(one, "unknown", 1), lambda one: delattr(one, "unknown")]
)
def test_what_is_no_field_is_frozen_too(change: Callable[[Any], None]) -> None:
    """Python 3.11 itself ends with a TypeError about super() there."""
    with pytest.raises(dataclasses.FrozenInstanceError, match="field 'unknown'"):
        change(plain(late_dataclass.dataclass)("a"))


def test_who_defines_what_freezes_is_refused() -> None:
    with pytest.raises(TypeError, match="Cannot overwrite attribute __setattr__ in class Loose"):

        @late_dataclass.dataclass(frozen=True, slots=True)
        class Loose:
            value: int

            def __setattr__(self, name: str, value: object) -> None: ...


PROBE: Final = """
import builtins
from etloop.contract.base.late_dataclass import dataclass
executed, execute = [], builtins.exec
builtins.exec = lambda *words: executed.append(words[0]) or execute(*words)
classes = [dataclass(frozen=True, slots=True)(type("C", (), {"__annotations__": {"value": "int"}})) for _ in range(50)]
before = len(executed)
assert [each(1).value for each in classes[:3]] == [1, 1, 1]
print(before, len(executed) > before)
"""


def test_what_is_not_called_is_not_made() -> None:
    done = subprocess.run((sys.executable, "-c", PROBE), capture_output=True, text=True, check=True)
    assert done.stdout == "0 True\n"
