"""Makes the methods of a frozen dataclass at their first call: a command loads hundreds of such classes and uses few.

The standard library writes, compiles and executes the text of five or six methods of every class at its definition;
that was a third of the start-up cost of `etloop run`. Here this is done for one method of one class at its first call.
The method then replaces its placeholder, so later calls cost the same as with the standard library.
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

        Classes with `frozen` and `slots`, and no other option but `eq`, get their methods late; all other classes are left to the
        standard library. That does not recognize late classes as frozen: derive from them only with this decorator.
        """

        def decorate(plain):
            if not (frozen and slots) or others or _has_init_only(plain):
                return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, **others)(plain)
            return _late(plain, eq=eq)

        return decorate if cls is None else decorate(cls)


_AS_THE_CLASS: Final = {"init": False, "repr": False, "eq": False}
_OF_THE_LIBRARY: Final[dict[str, dict[str, bool]]] = {
    "__init__": {"init": True, "frozen": True},
    "__repr__": {"repr": True},
    "__eq__": {"eq": True},
    "__hash__": {"unsafe_hash": True},
}
"""Arguments with which the standard library makes one method and, except those for freezing, no other."""


def _has_init_only(plain: type) -> bool:
    """Return whether the constructor has parameters that are not fields (`InitVar`); they cannot be found after the
    class is made.
    """
    return any("InitVar" in str(annotation) for annotation in inspect.get_annotations(plain).values())


def _late(plain: type, *, eq: bool) -> type:
    """Return the class with slots, and with a placeholder for each method that it does not define itself."""
    defined = plain.__dict__
    missing_methods = [name for name in ("__init__", "__repr__") if name not in defined]
    if eq:
        # Python itself adds a __hash__ of None to a class with an __eq__.
        hashed = defined.get("__hash__") is not None or ("__hash__" in defined and "__eq__" not in defined)
        missing_methods += [name for name in ("__eq__",) if name not in defined]
        missing_methods += [] if hashed else ["__hash__"]
    if plain.__doc__ is None:
        # The default docstring is the signature, which would need the constructor.
        plain.__doc__ = plain.__name__
    slotted: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(plain)
    for name in missing_methods:
        _put(slotted, name, _placeholder(slotted, name))
    _freeze(slotted)
    return slotted


def _put(made: type, name: str, method: Callable[..., Any]) -> None:
    method.__name__, method.__qualname__, method.__module__ = (
        name,
        f"{made.__qualname__}.{name}",
        made.__module__,
    )
    setattr(made, name, method)


def _placeholder(made: type, name: str) -> Callable[..., Any]:
    def first_call(self: Any, /, *args: Any, **named: Any) -> Any:
        method = _method(made, name)
        _put(made, name, method)
        return method(self, *args, **named)

    return first_call


def _method(made: type, name: str) -> Callable[..., Any]:
    """Return the method that the standard library makes for the same fields."""
    fields = [
        (class_field.name, class_field.type, _field_copy(class_field))
        for class_field in dataclasses.fields(made)
    ]
    namespace = {"__post_init__": None} if hasattr(made, "__post_init__") else {}
    options: dict[str, Any] = _AS_THE_CLASS | _OF_THE_LIBRARY[name]
    twin = dataclasses.make_dataclass(made.__name__, fields, namespace=namespace, **options)
    method: Callable[..., Any] = twin.__dict__[name]
    return method


def _field_copy(known: dataclasses.Field[Any]) -> Any:
    """Return a copy of a field, since a field can be given to one class only."""
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
    """Raise the standard library's errors at changes of a frozen instance, and support pickling as it does."""
    names = frozenset(class_field.name for class_field in dataclasses.fields(made))

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
    for name, pickling in (("__getstate__", _state), ("__setstate__", _take_state)):
        if name not in made.__dict__:
            setattr(made, name, pickling)


def _state(self: Any) -> list[Any]:
    return [getattr(self, class_field.name) for class_field in dataclasses.fields(self)]


def _take_state(self: Any, state: list[Any]) -> None:
    for class_field, value in zip(dataclasses.fields(self), state, strict=False):
        object.__setattr__(self, class_field.name, value)
