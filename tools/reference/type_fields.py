"""Types that declare the keys of a file by `setting` -> a tree of fields."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import sys
import textwrap
from collections import defaultdict
from typing import Any, Final

from etloop.contract.base.questions import Shape
from etloop.contract.base.setting import Kind, Setting, setting_of
from etloop.contract.base.value_form import form_of
from tools.reference.fields import ANY_KEY, Field, written_default

_SHAPES = {
    Kind.VALUE: Shape.VALUE,
    Kind.LIST: Shape.VALUES,
    Kind.GROUP: Shape.MAPPING,
    Kind.GROUPS: Shape.MAPPINGS,
    Kind.NAMED: Shape.MAPPING,
}


def fields_of_type(kind: type[Any]) -> tuple[Field, dict[str, str]]:
    """Return the fields of a type, and the paths of mappings whose keys users choose with the pattern of a key."""
    fill_in_meanings()
    root, open_keys = Field("", {Shape.MAPPING}), dict[str, str]()
    _add_type(root, "", kind, open_keys)
    return root, open_keys


def _add_type(place: Field, prefix: str, kind: type[Any], open_keys: dict[str, str]) -> None:
    for field in dataclasses.fields(kind):
        declared = setting_of(field)
        if declared is None:
            continue
        if declared.by_value is not None:
            _add_variants(place, prefix, declared, open_keys)
        elif declared.group is not None and not declared.key:
            _add_type(place, prefix, declared.group, open_keys)
        else:
            default = None if field.default is dataclasses.MISSING else field.default
            _add_key(place, prefix, declared, default, open_keys)


_FILLED_MODULES: Final[set[str]] = set()
"""Modules whose types have their meanings: every file of a format asks for them."""


def fill_in_meanings() -> None:
    """Give every setting of the loaded types the text below its field as its meaning."""
    fresh = [name for name in sys.modules if name.startswith("etloop.") and name not in _FILLED_MODULES]
    _FILLED_MODULES.update(fresh)
    modules = [sys.modules[name] for name in fresh]
    for kind in {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}:
        if not str(kind.__module__).startswith("etloop.") or not dataclasses.is_dataclass(kind):
            continue
        settings = {field.name: setting_of(field) for field in dataclasses.fields(kind)}
        if any(settings.values()):
            texts = _texts_below_fields(kind)
            for name, declared in settings.items():
                if declared is not None and not declared.meaning:
                    object.__setattr__(declared, "meaning", texts.get(name, ""))


@functools.cache
def _texts_below_fields(kind: type[Any]) -> dict[str, str]:
    """Return the texts that the source has below the fields of a type and of the types that it derives from."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in itertools.pairwise(body.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def _add_key(
    place: Field, prefix: str, declared: Setting, default: object, open_keys: dict[str, str]
) -> None:
    path = f"{prefix}{declared.key}"
    child = place.children.setdefault(declared.key, Field(path))
    child.shapes.add(_SHAPES[declared.kind])
    child.meaning = declared.meaning
    child.required = bool(declared.remedy)
    if declared.kind is Kind.NAMED:
        _add_names(child, path, declared, open_keys)
    elif declared.group is not None:
        below = f"{path}[]." if declared.kind is Kind.GROUPS else f"{path}."
        _add_type(child, below, declared.group, open_keys)
    else:
        _add_form(child, declared, default)


def _add_form(child: Field, declared: Setting, default: object) -> None:
    form = form_of(declared.parse) if declared.parse is not None else None
    if form is not None and form not in child.forms:
        child.forms.append(form)
    if form is not None and declared.kind is Kind.VALUE:
        text = written_default(form, declared.parse, default)
        child.defaults += [text] if text and text not in child.defaults else []


def _add_names(child: Field, path: str, declared: Setting, open_keys: dict[str, str]) -> None:
    name_form = form_of(declared.parse_name) if declared.parse_name is not None else None
    assert name_form is not None, f"the parser of names of {path} has no form"
    open_keys[path] = name_form.schema["pattern"].removeprefix("^(?:").removesuffix(")$")
    content = child.children.setdefault(ANY_KEY, Field(f"{path}.{ANY_KEY}"))
    content.meaning = declared.name_meaning[0].upper() + declared.name_meaning[1:]
    if declared.group is not None:
        content.shapes.add(Shape.MAPPING)
        _add_type(content, f"{path}.{ANY_KEY}.", declared.group, open_keys)
    else:
        content.shapes.add(Shape.VALUE)
        _add_form(content, declared, None)


def _add_variants(place: Field, prefix: str, declared: Setting, open_keys: dict[str, str]) -> None:
    """Add the keys of all variants; the meaning of a key names the variants that have it."""
    meanings: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    assert declared.by_value is not None
    for value, kind in declared.by_value.items():
        variant = Field("")
        _add_type(variant, prefix, kind, open_keys)
        for key, child in variant.children.items():
            known = place.children.setdefault(key, child)
            known.required = False
            known.forms += [form for form in child.forms if form not in known.forms]
            known.defaults += [text for text in child.defaults if text not in known.defaults]
            meanings[key][child.meaning].append(str(value))
    for key, values_by_meaning in meanings.items():
        texts = [f"{', '.join(values)}: {meaning}" for meaning, values in values_by_meaning.items()]
        place.children[key].meaning = " ".join(texts)
