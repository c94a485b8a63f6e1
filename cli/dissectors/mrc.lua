-- MRC (OCP Multipath Reliable Connection) for Wireshark 4: `tshark -X lua_script:mrc.lua`, or a file among the personal plugins.
-- It dissects UDP port 4971 (a preference), and on port 4791 packets with an opcode of MRC, before RoCEv2's dissector.

local mrc = Proto("mrc", "Multipath Reliable Connection")
local ROCE_PORT = 4791
local ICRC_BYTES = 4

-- BEGIN: written by tools/write_dissectors.py from the layouts in traffic/native/wire
-- {kind, meaning, names of values} by field.
local FIELDS = {
  ["ack_psn_offset"] = { "int", "PSN acknowledged, relative to the cumulative PSN" },
  ["answers_probe"] = { "bool", "Answers a probe" },
  ["cack_psn"] = { "uint", "Cumulative PSN: all up to here were received" },
  ["cc_flags"] = { "uint", "Congestion control flags" },
  ["cc_type"] = { "uint", "Congestion control type" },
  ["dest_qpn"] = { "uint", "Destination queue pair" },
  ["dma_bytes"] = { "uint", "DMA length: bytes of the message" },
  ["dpdcid"] = { "uint", "Destination queue pair, low bits" },
  ["entropy"] = { "uint", "Entropy value of the packet answered" },
  ["ftype"] = { "uint", "Timestamp format" },
  ["high_op"] = { "uint", "Operation, where one implementation writes it", {
    [0] = "port status", [1] = "entropy probe",
  } },
  ["imm"] = { "uint", "Immediate data" },
  ["mark"] = { "uint", "Entropy mark", {
    [0] = "none", [1] = "skip once", [2] = "skip always",
  } },
  ["mpr"] = { "uint", "Maximum PSN range, in 128 PSNs" },
  ["msn"] = { "uint", "Message sequence number" },
  ["nack_psn"] = { "uint", "PSN refused" },
  ["ooo_count"] = { "uint", "Packets received out of order" },
  ["op"] = { "uint", "Operation", {
    [0] = "port status", [1] = "entropy probe",
  } },
  ["opcode"] = { "uint", "Opcode", {
    [198] = "write first", [199] = "write middle", [200] = "write last", [201] = "write last imm", [202] = "write only",
    [203] = "write only imm", [209] = "ack", [216] = "endpoint request", [217] = "endpoint response", [220] = "sack",
    [221] = "nack", [222] = "probe",
  } },
  ["p_key"] = { "uint", "Partition key" },
  ["pad"] = { "uint", "Pad bytes" },
  ["port_status_mask"] = { "uint", "Usable ports, a bit each" },
  ["probe_id"] = { "uint", "Probe identifier" },
  ["psn"] = { "uint", "Packet sequence number" },
  ["rcv_cwnd_pen"] = { "uint", "Receiver's congestion window penalty" },
  ["rcvd_bytes"] = { "uint", "Bytes received, in 256 bytes" },
  ["reason"] = { "uint", "NACK reason", {
    [1] = "trimmed", [2] = "trimmed last hop", [6] = "no bitmap", [7] = "no packet buffer", [10] = "no resource",
    [11] = "psn out of window", [25] = "unexpected event",
  } },
  ["restore_cwnd"] = { "bool", "Restore the congestion window" },
  ["rkey"] = { "uint", "Remote key" },
  ["rqmsn"] = { "uint", "Receive queue message sequence number" },
  ["rtx"] = { "bool", "Retransmission" },
  ["sack_bitmap"] = { "uint", "PSNs received, lowest bit first" },
  ["sack_offset"] = { "int", "PSN of the bitmap's lowest bit, relative to the cumulative PSN" },
  ["sack_req"] = { "bool", "SACK requested" },
  ["spdcid"] = { "uint", "Source queue pair, low bits" },
  ["syndrome"] = { "uint", "Syndrome" },
  ["ts"] = { "bool", "TSETH follows" },
  ["tsr"] = { "bool", "Timestamp has a unit of the implementation" },
  ["tver"] = { "uint", "Transport version" },
  ["tx_timestamp"] = { "uint", "Transmit timestamp, in 128 ns unless tsr is set" },
  ["va"] = { "uint", "Virtual address of this packet's payload" },
  ["vendor_info"] = { "uint", "Vendor information" },
}
-- {field, first bit, bits} in wire order; a header whose layout depends on a flag has two forms.
local HEADERS = {
  bth = { title = "BTH", bytes = 12,
    { "opcode", 0, 8 }, { "pad", 10, 2 }, { "tver", 12, 4 }, { "p_key", 16, 16 }, { "dest_qpn", 40, 24 }, { "sack_req", 64, 1 },
    { "rtx", 66, 1 }, { "ts", 67, 1 }, { "psn", 72, 24 },
  },
  meth = { title = "METH", bytes = 4,
    { "rqmsn", 0, 16 }, { "msn", 16, 16 },
  },
  tseth = { title = "TSETH", bytes = 4,
    { "tx_timestamp", 0, 16 }, { "tsr", 16, 1 }, { "ftype", 28, 4 },
  },
  reth = { title = "RETH", bytes = 16,
    { "va", 0, 64 }, { "rkey", 64, 32 }, { "dma_bytes", 96, 32 },
  },
  immdt = { title = "IMMDT", bytes = 4,
    { "imm", 0, 32 },
  },
  aeth = { title = "AETH", bytes = 4,
    { "syndrome", 0, 8 }, { "msn", 8, 24 },
  },
  seth = { title = "SETH", bytes = 28,
    { "mark", 9, 2 }, { "answers_probe", 14, 1 }, { "ack_psn_offset", 16, 16 }, { "entropy", 32, 32 }, { "spdcid", 64, 16 },
    { "dpdcid", 80, 16 }, { "cack_psn", 104, 24 }, { "cc_type", 128, 4 }, { "cc_flags", 132, 4 }, { "mpr", 136, 8 },
    { "sack_offset", 144, 16 }, { "sack_bitmap", 160, 64 },
  },
  seth_probe = { title = "SETH", bytes = 28,
    { "mark", 9, 2 }, { "answers_probe", 14, 1 }, { "probe_id", 16, 16 }, { "entropy", 32, 32 }, { "spdcid", 64, 16 },
    { "dpdcid", 80, 16 }, { "cack_psn", 104, 24 }, { "cc_type", 128, 4 }, { "cc_flags", 132, 4 }, { "mpr", 136, 8 },
    { "sack_offset", 144, 16 }, { "sack_bitmap", 160, 64 },
  },
  cc_state = { title = "CC_STATE", bytes = 8,
    { "tx_timestamp", 0, 16 }, { "ooo_count", 17, 15 }, { "restore_cwnd", 32, 1 }, { "rcv_cwnd_pen", 33, 7 },
    { "rcvd_bytes", 40, 24 },
  },
  neth = { title = "NETH", bytes = 20,
    { "reason", 16, 8 }, { "vendor_info", 24, 8 }, { "entropy", 32, 32 }, { "spdcid", 64, 16 }, { "dpdcid", 80, 16 },
    { "nack_psn", 104, 24 }, { "cc_type", 128, 4 }, { "cc_flags", 132, 4 }, { "tx_timestamp", 144, 16 },
  },
  peth = { title = "PETH", bytes = 16,
    { "vendor_info", 24, 8 }, { "probe_id", 32, 16 }, { "spdcid", 64, 16 }, { "dpdcid", 80, 16 }, { "tx_timestamp", 96, 16 },
    { "tsr", 112, 1 }, { "ftype", 124, 4 },
  },
  erth = { title = "ERTH", bytes = 16,
    { "op", 14, 2 }, { "vendor_info", 24, 8 }, { "port_status_mask", 32, 32 }, { "tx_timestamp", 96, 16 }, { "tsr", 112, 1 },
    { "ftype", 124, 4 },
  },
  eeth = { title = "EETH", bytes = 36,
    { "high_op", 10, 2 }, { "op", 12, 2 }, { "tx_timestamp", 224, 16 },
  },
}
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
-- END: written

local fields = declare_fields("mrc")
local payload = ProtoField.bytes("mrc.payload", "Payload")
local icrc = ProtoField.uint32("mrc.icrc", "Invariant CRC", base.HEX)
fields[#fields + 1] = payload
fields[#fields + 1] = icrc
mrc.fields = fields
local cut = ProtoExpert.new("mrc.cut", "Cut before the end of its headers", expert.group.MALFORMED, expert.severity.NOTE)
mrc.experts = { cut }

local OPCODES = FIELDS.opcode[3]
local AFTER_BTH = {
  [0xD1] = { "aeth" }, [0xD8] = { "erth" }, [0xD9] = { "eeth" }, [0xDC] = { "seth", "cc_state" }, [0xDD] = { "neth" },
  [0xDE] = { "peth" },
}

local function headers_after_bth(opcode, has_tseth)
  if opcode > 0xCB then return AFTER_BTH[opcode] end
  local names = { "meth" }
  if has_tseth then names[#names + 1] = "tseth" end
  names[#names + 1] = "reth"
  if opcode == 0xC9 or opcode == 0xCB then names[#names + 1] = "immdt" end
  return names
end

local function form_of(name, buffer, at)
  if name ~= "seth" or buffer:len() < at + HEADERS.seth.bytes then return name end
  return value_of(HEADERS.seth, "answers_probe", buffer, at) == 1 and "seth_probe" or name
end

local function line_of(values)
  local line = string.format("%s QP=0x%06x PSN=%d", name_of("opcode", values.opcode):upper(), values.dest_qpn, values.psn)
  if values.rtx == 1 then line = line .. " retransmission" end
  if values.sack_bitmap then
    line = line .. string.format(" cumulative=%d bitmap=0x%s", values.cack_psn, values.sack_bitmap:tohex())
  elseif values.reason then
    line = line .. string.format(" %s %d", name_of("reason", values.reason), values.nack_psn)
  end
  return line
end

function mrc.dissector(buffer, packet, root)
  if buffer:len() < HEADERS.bth.bytes or OPCODES[buffer(0, 1):uint()] == nil then return 0 end
  packet.cols.protocol = "MRC"
  local tree, values = root:add(mrc, buffer()), {}
  local at = add_header("bth", buffer, 0, tree, values)
  for _, name in ipairs(headers_after_bth(values.opcode, values.ts == 1)) do
    at = add_header(form_of(name, buffer, at), buffer, at, tree, values)
    if at == nil then break end
  end
  packet.cols.info = line_of(values)
  if at == nil then
    tree:add_proto_expert_info(cut)
    return buffer:len()
  end
  local payload_bytes = buffer:len() - at - ICRC_BYTES
  local whole = buffer:len() == buffer:reported_len()
  if whole and payload_bytes > 0 then tree:add(payload, buffer(at, payload_bytes)) end
  if whole and payload_bytes >= 0 then tree:add(icrc, buffer(at + payload_bytes, ICRC_BYTES)) end
  return buffer:len()
end

local ports = DissectorTable.get("udp.port")
local used_port
local function use_port(port)
  if used_port ~= nil then ports:remove(used_port, mrc) end
  ports:add(port, mrc)
  used_port = port
end
mrc.prefs.port = Pref.uint("UDP port", 4971, "the destination port that carries MRC")
function mrc.prefs_changed() use_port(mrc.prefs.port) end
use_port(4971)

-- A port has one dissector. On RoCEv2's port, other opcodes go on to the dissector that was registered before.
local roce = ports:get_dissector(ROCE_PORT)
local shared = Proto("mrc_or_roce", "MRC or RoCEv2 by opcode")
function shared.dissector(buffer, packet, root)
  if buffer:len() > 0 and OPCODES[buffer(0, 1):uint()] ~= nil then return mrc.dissector(buffer, packet, root) end
  return roce ~= nil and roce:call(buffer, packet, root) or 0
end
ports:add(ROCE_PORT, shared)
