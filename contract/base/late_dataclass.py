"""Make the methods of a frozen dataclass when they are first called: a command loads hundreds of such classes and uses few.

The standard library writes, compiles and executes the text of five or six methods of every class where it is defined; that was
a third of what starting `etloop run` cost. Here it does so for one method of one class at its first call, and that method then
takes the place of what stood for it, so later calls cost what they always do.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 -- type checkers know that one by its name
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, **others):
        """Decorate a class as `dataclasses.dataclass` does, with the same methods, fields, errors and pickles.

        Those with `frozen` and `slots`, and at most `eq` beside, get their methods late; all others are left to the standard
        library. It takes late ones for not frozen: a class that is derived from one comes from here as well.
        """

        def decorated(plain):
            if not (frozen and slots) or others or _has_init_only(plain):
                return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, **others)(plain)
            return _late(plain, eq=eq)

        return decorated if cls is None else decorated(cls)


_AS_THE_CLASS: Final = {"init": False, "repr": False, "eq": False}
_OF_THE_LIBRARY: Final[dict[str, dict[str, bool]]] = {
    "__init__": {"init": True, "frozen": True},
    "__repr__": {"repr": True},
    "__eq__": {"eq": True},
    "__hash__": {"unsafe_hash": True},
}
"""How the standard library is asked for one method and, but for what freezes, no other."""


def _has_init_only(plain: type) -> bool:
    """Whether the constructor takes what is no field: nobody outside the standard library can tell which afterwards."""
    return any("InitVar" in str(annotation) for annotation in inspect.get_annotations(plain).values())


def _late(plain: type, *, eq: bool) -> type:
    """The class with slots, and with something that stands for each method that it does not define itself."""
    defined = plain.__dict__
    wanted = [name for name in ("__init__", "__repr__") if name not in defined]
    if eq:
        # Python itself puts a __hash__ of None beside an __eq__.
        hashed = defined.get("__hash__") is not None or ("__hash__" in defined and "__eq__" not in defined)
        wanted += [name for name in ("__eq__",) if name not in defined]
        wanted += [] if hashed else ["__hash__"]
    if plain.__doc__ is None:
        # It would be the signature, for which the constructor would be needed.
        plain.__doc__ = plain.__name__
    made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(plain)
    for name in wanted:
        _put(made, name, _standing_for(made, name))
    _freeze(made)
    return made


def _put(made: type, name: str, method: Callable[..., Any]) -> None:
    method.__name__, method.__qualname__, method.__module__ = (
        name,
        f"{made.__qualname__}.{name}",
        made.__module__,
    )
    setattr(made, name, method)


def _standing_for(made: type, name: str) -> Callable[..., Any]:
    def first_call(self: Any, /, *args: Any, **named: Any) -> Any:
        method = _method(made, name)
        _put(made, name, method)
        return method(self, *args, **named)

    return first_call


def _method(made: type, name: str) -> Callable[..., Any]:
    """What the standard library makes of the same fields."""
    found = [(each.name, each.type, _again(each)) for each in dataclasses.fields(made)]
    after = {"__post_init__": None} if hasattr(made, "__post_init__") else {}
    asked: dict[str, Any] = _AS_THE_CLASS | _OF_THE_LIBRARY[name]
    twin = dataclasses.make_dataclass(made.__name__, found, namespace=after, **asked)
    method: Callable[..., Any] = twin.__dict__[name]
    return method


def _again(known: dataclasses.Field[Any]) -> Any:
    """A field can be given to one class only."""
    default: dict[str, Any] = {}
    if known.default is not dataclasses.MISSING:
        default["default"] = known.default
    elif known.default_factory is not dataclasses.MISSING:
        default["default_factory"] = known.default_factory
    return dataclasses.field(
        init=known.init,
        repr=known.repr,
        hash=known.hash,
        compare=known.compare,
        kw_only=known.kw_only,
        **default,
    )


def _freeze(made: type[Any]) -> None:
    """Refuse what the standard library refuses of a frozen class, with its words, and keep it in pickles as it does."""
    names = frozenset(each.name for each in dataclasses.fields(made))

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    for name, method in (("__setattr__", set_attribute), ("__delattr__", delete_attribute)):
        if name in made.__dict__:
            raise TypeError(f"Cannot overwrite attribute {name} in class {made.__name__}")
        _put(made, name, method)
    for name, kept in (("__getstate__", _state), ("__setstate__", _take_state)):
        if name not in made.__dict__:
            setattr(made, name, kept)


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _take_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=False):
        object.__setattr__(self, each.name, value)
