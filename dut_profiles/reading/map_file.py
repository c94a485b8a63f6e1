"""Reads the `maps:` of a profile: the class, queue, group and priority of a mark.

Every map is complete; those from classes may continue beyond the eighth, for devices that have more.

dscp_to_class: {default: 0, 26: 3, 40-47: 5, 48: 6}
class_to_queue: identity
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_parsers import integer, one_of, word_of
from etloop.contract.base.yaml_reader import Section
from etloop.dut_profiles.model.profile import DSCPS, MOST_CLASSES, MOST_QUEUES, PRIORITIES, Trust
from etloop.dut_profiles.reading.quantities import number_range
from etloop.dut_profiles.reading.statements import single


def _map_reader(keys: int, values: int, most_keys: int = 0) -> Callable[[Section, str], tuple[int, ...]]:
    """Return a reader of a map to 0..values-1: `identity`, or ranges of keys with a value each.

    All of 0..keys-1 must be mapped; up to `most_keys` may be.
    """

    def read(place: Section, name: str) -> tuple[int, ...]:
        identity = tuple(number % values for number in range(keys))
        if not place.keys_under(name):
            return place.optional(name, one_of({"identity": identity} if keys <= values else {}), identity)
        entries = place.section(name)
        default = entries.optional("default", integer(0, values - 1), None)
        mapped: dict[int, int] = {}
        for key in entries.entry_names():
            if key == "default":
                continue
            value = entries.optional(key, integer(0, values - 1), 0)
            try:
                numbers = number_range(max(keys, most_keys) - 1)(key)
            except QuantityError as error:
                entries.mistake(key, error.what, error.remedy)
                continue
            if repeated := sorted(mapped.keys() & set(numbers)):
                entries.mistake(key, f"{repeated[0]} is mapped twice", "map every number once")
            mapped.update((number, value) for number in numbers)
        length = max(keys, 1 + max(mapped, default=0))
        unmapped = [number for number in range(length) if number not in mapped]
        if unmapped and default is None:
            place.mistake(
                name, f"{len(unmapped)} of {length} are not mapped, such as {unmapped[0]}", "add default: N"
            )
        return tuple(mapped.get(number, default or 0) for number in range(length))

    return read


MAPS: Final = {
    "trust": single(word_of(Trust)),
    "dscp_to_class": _map_reader(DSCPS, MOST_CLASSES),
    "pcp_to_class": _map_reader(PRIORITIES, MOST_CLASSES),
    "class_to_queue": _map_reader(PRIORITIES, MOST_QUEUES, MOST_CLASSES),
    "class_to_group": _map_reader(PRIORITIES, PRIORITIES, MOST_CLASSES),
    "group_to_priority": _map_reader(PRIORITIES, PRIORITIES),
    "priority_to_queue": _map_reader(PRIORITIES, MOST_QUEUES),
}
