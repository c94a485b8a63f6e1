"""XML text -> a plain tree, for minigraph.xml and LLDP. Document types, and thus entities, are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

from etloop.contract.base.errors import ConfigError, Problem

LARGEST_XML_BYTES: Final = 64 << 20
MOST_ELEMENTS: Final = 1 << 20
DEEPEST: Final = 64


class Element:
    """One element: its name and attributes without namespaces, its text, and the elements in it."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.text = ""
        self.children: list[Element] = []

    def child(self, name: str) -> Element | None:
        """Return the first element of this name directly in this one."""
        return next((child for child in self.children if child.name == name), None)

    def text_of(self, name: str) -> str:
        """Return the text of the first element of this name directly in this one; "" without one."""
        child = self.child(name)
        return "" if child is None else child.text.strip()

    def all(self, name: str) -> Iterator[Element]:
        """Yield all elements of this name below this one, in the order of the file."""
        waiting = list(reversed(self.children))
        while waiting:
            element = waiting.pop()
            if element.name == name:
                yield element
            waiting += reversed(element.children)


class _RefusedError(Exception):
    """XML that is well formed but refused."""


def parse_xml(written: bytes, source: str) -> Element:
    """Return the root element. Raise `ConfigError` for text that is no XML, or too much of it."""
    root = Element("", {})
    path = [root]
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MOST_ELEMENTS or len(path) > DEEPEST:
            raise _RefusedError(
                f"has more than {MOST_ELEMENTS} elements, or is nested more than {DEEPEST} deep"
            )
        local = {key.rpartition(":")[2]: value for key, value in attributes.items()}
        element = Element(name.rpartition(":")[2], local)
        path[-1].children.append(element)
        path.append(element)

    def add_text(text: str) -> None:
        path[-1].text += text

    def refuse_document_type(*_: object) -> None:
        raise _RefusedError("has a document type, which may define entities")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    parser.CharacterDataHandler = add_text
    parser.StartDoctypeDeclHandler = refuse_document_type
    parser.buffer_text = True
    if len(written) > LARGEST_XML_BYTES:
        problem = f"has more than {LARGEST_XML_BYTES} bytes"
        raise ConfigError(Problem(source, problem, "give the file as the switch writes it"))
    try:
        parser.Parse(written, True)
    except _RefusedError as error:
        raise ConfigError(Problem(source, str(error), "give the file as the switch writes it")) from None
    except (expat.ExpatError, ValueError) as error:
        raise ConfigError(
            Problem(source, f"is not XML: {error}", "give the file as the switch writes it")
        ) from None
    return root.children[0]
