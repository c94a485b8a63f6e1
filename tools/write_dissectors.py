"""Write the layouts of headers into the Wireshark dissectors: `python tools/write_dissectors.py`.

The layouts are those of mrc.h, uet_pds.h and uet_ses.h in traffic/native/wire, as the native module returns them. A test checks
that the dissectors are current.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Final

from etloop.traffic import _native

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parent.parent
BEGIN: Final = "-- BEGIN: written by tools/write_dissectors.py from the layouts in traffic/native/wire\n"
END: Final = "-- END: written\n"
_WIDTH: Final = 130
_DECLARATION: Final = """
-- Declare a ProtoField for each place of a field; return all. HEADERS then has the bytes of each field and its ProtoField.
local function declare_fields(filter)
  local declared, fields = {}, {}
  for _, header in pairs(HEADERS) do
    for _, entry in ipairs(header) do
      local first, bits = entry[2] % 8, entry[3]
      entry.at = math.floor(entry[2] / 8)
      entry.bytes = math.floor((first + bits + 7) / 8)
      local mask = bits < 8 * entry.bytes and (2 ^ bits - 1) * 2 ^ (8 * entry.bytes - first - bits) or nil
      local key = string.format("%s %d %d", entry[1], entry.bytes, mask or 0)
      if declared[key] == nil then
        local kind, meaning, names = table.unpack(FIELDS[entry[1]])
        local name = filter .. "." .. entry[1]
        if kind == "bool" then
          declared[key] = ProtoField.bool(name, meaning, 8 * entry.bytes, nil, mask)
        else
          local shown = kind == "int" and base.DEC or bits == 64 and base.HEX or base.DEC_HEX
          declared[key] = ProtoField[kind .. 8 * entry.bytes](name, meaning, shown, names, mask)
        end
        fields[#fields + 1] = declared[key]
      end
      entry.field = declared[key]
    end
  end
  return fields
end

-- Return a field of the header at `at` as a number, or as UInt64 if it has more than 32 bits.
local function value_of(header, name, buffer, at)
  for _, entry in ipairs(header) do
    if entry[1] == name then return buffer(at + entry.at, entry.bytes):bitfield(entry[2] % 8, entry[3]) end
  end
end

-- Add the header at `at` to the tree, and its fields to `values`; return where it ends, or nil if the buffer ends before.
local function add_header(name, buffer, at, tree, values)
  local header = HEADERS[name]
  if buffer:len() < at + header.bytes then return nil end
  local branch = tree:add(buffer(at, header.bytes), header.title)
  for _, entry in ipairs(header) do
    branch:add(entry.field, buffer(at + entry.at, entry.bytes))
    values[entry[1]] = value_of(header, entry[1], buffer, at)
  end
  return at + header.bytes
end

local function name_of(field, value) return FIELDS[field][3][value] or string.format("%s 0x%02x", field, value) end
"""


def layout_tables(layouts: list[_native.HeaderLayout], title: Callable[[str], str]) -> str:
    """Return the Lua tables FIELDS and HEADERS, and the functions that declare and read fields by them."""
    fields: dict[str, tuple[str, str, dict[int, str]]] = {}
    headers = []
    for layer, name, form, size_bytes, entries in layouts:
        places = []
        for field, meaning, first_bit, bits, kind, names in entries:
            path = f"{layer}.{field}" if layer else field
            if meaning:
                assert fields.setdefault(path, (kind, meaning, names)) == (kind, meaning, names), path
            places.append(f'{{ "{path}", {first_bit}, {bits} }}')
        head = f'  {name}{f"_{form}" if form else ""} = {{ title = "{title(name)}", bytes = {size_bytes},'
        headers.append("\n".join([head, *_wrap(places, "    "), "  },"]))
    lines = [
        "-- {kind, meaning, names of values} by field.",
        "local FIELDS = {",
        *(line for path, field in sorted(fields.items()) for line in _field_lines(path, *field)),
        "}",
        "-- {field, first bit, bits} in wire order; a header whose layout depends on a flag has two forms.",
        "local HEADERS = {",
        *headers,
        "}",
    ]
    return "\n".join(lines) + _DECLARATION


def _field_lines(path: str, kind: str, meaning: str, names: dict[int, str]) -> list[str]:
    head = f'  ["{path}"] = {{ "{kind}", "{meaning}"'
    if not names:
        return [f"{head} }},"]
    return [
        f"{head}, {{",
        *_wrap([f'[{value}] = "{name}"' for value, name in names.items()], "    "),
        "  } },",
    ]


def _wrap(items: list[str], indent: str) -> list[str]:
    text = ", ".join(item.replace(" ", "\0") for item in items) + ","
    wrapped = fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped.replace("\0", " ").split("\n")


def dissector(text: str, transport: str) -> str:
    """Return the dissector `text` of "mrc" or "uet" with current layouts between its BEGIN and END lines."""
    layouts, title = {
        "mrc": (_native.mrc_headers, str.upper),
        "uet": (_native.uet_headers, lambda name: name.replace("_", " ").capitalize()),
    }[transport]
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}{layout_tables(layouts(), title)}{END}{after}"


def main() -> None:
    """Rewrite both dissectors."""
    for transport in ("mrc", "uet"):
        path = ROOT / "cli/dissectors" / f"{transport}.lua"
        path.write_text(dissector(path.read_text(encoding="utf-8"), transport), encoding="utf-8")


if __name__ == "__main__":
    main()
