-- UET (Ultra Ethernet Transport 1.0) for Wireshark 4.0 to 4.4: `tshark -X lua_script:uet.lua`, or a file among the personal
-- plugins. It takes UDP port 4793 (a preference). A Wireshark that has a dissector named uet of its own keeps that one.
-- Layouts are those of docs/uet.md; there is no encryption (TSS) and no CRC in them.

for _, name in ipairs(Dissector.list()) do
  if name == "uet" then return end
end

local uet = Proto("uet", "Ultra Ethernet Transport")

local TYPES = {
  [1] = "TSS", [2] = "RUD request", [3] = "ROD request", [4] = "RUDI request", [5] = "RUDI response", [6] = "UUD request",
  [7] = "ACK", [8] = "ACK_CC", [9] = "ACK_CCX", [10] = "NACK", [11] = "Control", [12] = "NACK_CCX", [13] = "RUD_CC request",
  [14] = "ROD_CC request",
}
local NEXT_HEADERS = {
  [0] = "none", [1] = "small request", [2] = "medium request", [3] = "standard request", [4] = "response",
  [5] = "response with data", [6] = "response with small data",
}
local CODES = {
  [0x01] = "trimmed", [0x02] = "trimmed at the last hop", [0x03] = "trimmed ACK", [0x04] = "no PDC available",
  [0x05] = "no congestion context available", [0x06] = "no bitmap", [0x07] = "no packet buffer",
  [0x08] = "no guaranteed delivery available", [0x09] = "no message available", [0x0A] = "no resource",
  [0x0B] = "PSN out of window", [0x0D] = "out of order", [0x0E] = "invalid DPDCID", [0x0F] = "header mismatch",
  [0x10] = "closing", [0x11] = "closing in error", [0x12] = "packet not received", [0x13] = "response unavailable",
  [0x14] = "ACK with data", [0x15] = "invalid SYN", [0x16] = "mode mismatch", [0x17] = "new start PSN",
  [0x18] = "received, in process", [0x19] = "unexpected event", [0x1A] = "loss inferred",
}
local CONTROLS = {
  [0] = "noop", [1] = "ACK request", [2] = "clear command", [3] = "clear request", [4] = "close command",
  [5] = "close request", [6] = "probe", [7] = "credit", [8] = "credit request", [9] = "negotiation",
}
local ACK_REQUESTS = { [0] = "none", [1] = "clear", [2] = "close" }
local CC_TYPES = { [0] = "NSCC", [1] = "credit" }
local OPERATIONS = {
  [0x00] = "noop", [0x01] = "write", [0x02] = "read", [0x03] = "atomic", [0x04] = "fetch atomic", [0x05] = "send",
  [0x06] = "rendezvous send", [0x07] = "datagram", [0x08] = "deferrable send", [0x09] = "tagged send",
  [0x0A] = "rendezvous tagged send", [0x0B] = "deferrable tagged send", [0x0C] = "ready to restart",
  [0x0D] = "tagged send atomic", [0x0E] = "tagged send fetch atomic", [0x0F] = "message error",
}
local RESPONSES = { [0] = "default", [1] = "response", [2] = "response with data", [3] = "no response" }
local LISTS = { [0] = "expected", [1] = "overflow" }
local RETURN_CODES = {
  [0x00] = "null", [0x01] = "OK", [0x02] = "bad generation", [0x03] = "disabled", [0x05] = "no match",
  [0x06] = "unsupported operation", [0x07] = "unsupported size", [0x09] = "translation permission",
  [0x0C] = "out of range", [0x17] = "permission violation", [0x19] = "bad index", [0x1A] = "bad process",
  [0x1B] = "bad job", [0x1C] = "bad key", [0x1D] = "bad address", [0x1E] = "cancelled", [0x22] = "too long",
  [0x23] = "initiator error", [0x24] = "dropped",
}

local f = {}
local fields = {}
local function keep(name, made)
  f[name] = made
  fields[#fields + 1] = made
end
local function field(name, kind, title, base, words, mask)
  keep(name, ProtoField[kind]("uet." .. name, title, base, words, mask))
end
local function flag(name, title, bits, mask)
  keep(name, ProtoField.bool("uet." .. name, title, bits, nil, mask))
end
-- Packet delivery.
field("pds.type", "uint16", "Type", base.DEC, TYPES, 0xF800)
field("pds.next_header", "uint16", "Next header", base.DEC, NEXT_HEADERS, 0x0780)
field("pds.control_type", "uint16", "Control type", base.DEC, CONTROLS, 0x0780)
flag("pds.marked", "Of a packet marked by ECN", 16, 0x0020)
flag("pds.rod", "Of ordered delivery", 16, 0x0020)
flag("pds.retransmitted", "Retransmission", 16, 0x0010)
flag("pds.ack_request", "Acknowledgement requested", 16, 0x0008)
flag("pds.answers_probe", "Answers a probe", 16, 0x0008)
flag("pds.of_rudi", "Of idempotent delivery", 16, 0x0008)
flag("pds.syn", "SYN", 16, 0x0004)
field("pds.request", "uint16", "Asks for", base.DEC, ACK_REQUESTS, 0x0006)
field("pds.clear_psn_offset", "int16", "Cleared up to, from the PSN", base.DEC)
field("pds.psn", "uint32", "Packet sequence number", base.DEC)
field("pds.spdcid", "uint16", "Source PDC", base.DEC)
field("pds.dpdcid", "uint16", "Destination PDC", base.DEC)
flag("pds.use_rsv_pdc", "Of the reserved PDCs", 16, 0x8000)
field("pds.psn_offset", "uint16", "From the first PSN", base.DEC, nil, 0x0FFF)
field("pds.ccc_id", "uint8", "Congestion context", base.DEC)
field("pds.credit_target", "uint24", "Credit asked for, in 256 bytes", base.DEC)
field("pds.pkt_id", "uint32", "Packet identifier", base.DEC)
field("pds.ack_psn_offset", "int16", "PSN that caused it, from the cumulative one", base.DEC)
field("pds.probe_opaque", "uint16", "Probe", base.DEC)
field("pds.cack_psn", "uint32", "Cumulative PSN", base.DEC)
field("pds.cc_type", "uint8", "Congestion control", base.DEC, CC_TYPES, 0xF0)
field("pds.cc_flags", "uint8", "Flags of congestion control", base.HEX, nil, 0x0F)
field("pds.mpr", "uint8", "Window in 128 PSNs", base.DEC)
field("pds.sack_psn_offset", "int16", "First PSN of the bitmap, from the cumulative one", base.DEC)
field("pds.sack_bitmap", "uint64", "SACK bitmap", base.HEX)
field("pds.service_time", "uint16", "Service time in 128 ns", base.DEC)
flag("pds.restore_cwnd", "Restore the window", 8, 0x80)
field("pds.rcv_cwnd_pend", "uint8", "Penalty of the window", base.DEC, nil, 0x7F)
field("pds.rcvd_bytes", "uint24", "Received, in 256 bytes", base.DEC)
field("pds.ooo_count", "uint16", "Packets out of order", base.DEC)
field("pds.credit", "uint24", "Credit, in 256 bytes", base.DEC)
field("pds.cc_state", "uint64", "State of congestion control", base.HEX)
field("pds.nack_code", "uint8", "Code", base.HEX, CODES)
field("pds.vendor_code", "uint8", "Of the vendor", base.HEX)
field("pds.payload", "uint32", "Payload", base.DEC)
-- Semantics.
field("ses.opcode", "uint8", "Operation", base.HEX, OPERATIONS, 0x3F)
field("ses.version", "uint8", "Version", base.DEC, nil, 0xC0)
flag("ses.dc", "Delivery complete", 8, 0x20)
flag("ses.ie", "Initiator error", 8, 0x10)
flag("ses.rel", "Relative address", 8, 0x08)
flag("ses.hd", "Header data present", 8, 0x04)
flag("ses.eom", "End of the message", 8, 0x02)
flag("ses.som", "Start of the message", 8, 0x01)
field("ses.message_id", "uint16", "Message", base.DEC)
field("ses.request_length", "uint16", "Length of the request", base.DEC, nil, 0x3FFF)
field("ses.ri_generation", "uint8", "Generation of the resource index", base.DEC)
field("ses.job_id", "uint24", "Job", base.DEC)
field("ses.pid_on_fep", "uint16", "Process", base.DEC, nil, 0x0FFF)
field("ses.resource_index", "uint16", "Resource index", base.DEC, nil, 0x0FFF)
field("ses.buffer_offset", "uint64", "Buffer offset", base.HEX)
field("ses.initiator", "uint32", "Initiator", base.HEX)
field("ses.memory_key", "uint64", "Memory key or match bits", base.HEX)
field("ses.header_data", "uint64", "Header data", base.HEX)
field("ses.payload_length", "uint32", "Length of the payload", base.DEC, nil, 0x3FFF)
field("ses.message_offset", "uint32", "Offset in the message", base.DEC)
field("ses.message_length", "uint32", "Length of the message", base.DEC)
field("ses.list", "uint8", "List", base.DEC, LISTS, 0xC0)
field("ses.response", "uint8", "Response", base.HEX, RESPONSES, 0x3F)
field("ses.return_code", "uint8", "Return code", base.HEX, RETURN_CODES, 0x3F)
field("ses.modified_length", "uint32", "Modified length", base.DEC)
field("ses.read_message_id", "uint16", "Message of the read", base.DEC)
field("ses.response_length", "uint16", "Length of the payload", base.DEC, nil, 0x3FFF)
field("ses.original_psn", "uint32", "PSN of the request", base.DEC)
keep("payload", ProtoField.bytes("uet.payload", "Payload"))
uet.fields = fields
local cut = ProtoExpert.new("uet.cut", "Cut before the end of its headers", expert.group.MALFORMED, expert.severity.NOTE)
local strange = ProtoExpert.new("uet.unknown", "Type or next header is not known", expert.group.UNDECODED, expert.severity.WARN)
uet.experts = { cut, strange }

-- A header: its title, its bytes, and its fields as {name, offset, bytes}; the offsets are from its beginning.
local PROLOGUE = { { "pds.type", 0, 2 }, { "pds.next_header", 0, 2 } }
local function header(title, bytes, ...)
  local entries = {}
  for _, list in ipairs({ ... }) do
    for _, entry in ipairs(list) do entries[#entries + 1] = entry end
  end
  return { title = title, bytes = bytes, entries = entries }
end
local PDCS = { { "pds.spdcid", 8, 2 }, { "pds.dpdcid", 10, 2 } }
local OPENING = { { "pds.spdcid", 8, 2 }, { "pds.use_rsv_pdc", 10, 2 }, { "pds.psn_offset", 10, 2 } }
local REQUEST = { { "pds.retransmitted", 0, 2 }, { "pds.ack_request", 0, 2 }, { "pds.syn", 0, 2 },
  { "pds.clear_psn_offset", 2, 2 }, { "pds.psn", 4, 4 } }
local ACK = { { "pds.marked", 0, 2 }, { "pds.retransmitted", 0, 2 }, { "pds.answers_probe", 0, 2 }, { "pds.request", 0, 2 } }
local CONTROL = { { "pds.type", 0, 2 }, { "pds.control_type", 0, 2 }, { "pds.rod", 0, 2 }, { "pds.retransmitted", 0, 2 },
  { "pds.ack_request", 0, 2 }, { "pds.syn", 0, 2 }, { "pds.probe_opaque", 2, 2 }, { "pds.psn", 4, 4 } }
local request = header("Request", 12, PROLOGUE, REQUEST, PDCS)
local opening_request = header("Request", 12, PROLOGUE, REQUEST, OPENING)
local credit_target = header("Credit target", 4, { { "pds.ccc_id", 0, 1 }, { "pds.credit_target", 1, 3 } })
local idempotent = header("Idempotent", 8, PROLOGUE,
  { { "pds.marked", 0, 2 }, { "pds.retransmitted", 0, 2 }, { "pds.pkt_id", 4, 4 } })
local unreliable = header("Unreliable", 4, PROLOGUE)
local ack = header("Acknowledgement", 12, PROLOGUE, ACK, { { "pds.ack_psn_offset", 2, 2 }, { "pds.cack_psn", 4, 4 } }, PDCS)
local probe_ack = header("Acknowledgement", 12, PROLOGUE, ACK, { { "pds.probe_opaque", 2, 2 }, { "pds.cack_psn", 4, 4 } }, PDCS)
local nack = header("Negative acknowledgement", 16, PROLOGUE, { { "pds.marked", 0, 2 }, { "pds.retransmitted", 0, 2 },
  { "pds.of_rudi", 0, 2 }, { "pds.nack_code", 2, 1 }, { "pds.vendor_code", 3, 1 }, { "pds.psn", 4, 4 } }, PDCS,
  { { "pds.payload", 12, 4 } })
local control = header("Control", 16, CONTROL, PDCS, { { "pds.payload", 12, 4 } })
local opening_control = header("Control", 16, CONTROL, OPENING, { { "pds.payload", 12, 4 } })
local cc_state = header("State of congestion control", 8, { { "pds.cc_state", 0, 8 } })

local SACK = { { "pds.cc_type", 0, 1 }, { "pds.cc_flags", 0, 1 }, { "pds.mpr", 1, 1 }, { "pds.sack_psn_offset", 2, 2 },
  { "pds.sack_bitmap", 4, 8 } }
local ACK_STATES = {
  [0] = header("SACK and state of NSCC", 20, SACK, { { "pds.service_time", 12, 2 }, { "pds.restore_cwnd", 14, 1 },
    { "pds.rcv_cwnd_pend", 14, 1 }, { "pds.rcvd_bytes", 15, 3 }, { "pds.ooo_count", 18, 2 } }),
  [1] = header("SACK and credit", 20, SACK, { { "pds.credit", 12, 3 }, { "pds.ooo_count", 18, 2 } }),
}
local ack_state = header("SACK and state", 20, SACK, { { "pds.cc_state", 12, 8 } })

local COMMON = { { "ses.opcode", 0, 1 }, { "ses.version", 1, 1 }, { "ses.dc", 1, 1 }, { "ses.ie", 1, 1 }, { "ses.rel", 1, 1 },
  { "ses.hd", 1, 1 }, { "ses.eom", 1, 1 }, { "ses.som", 1, 1 } }
local RESOURCE = { { "ses.ri_generation", 4, 1 }, { "ses.job_id", 5, 3 }, { "ses.pid_on_fep", 8, 2 },
  { "ses.resource_index", 10, 2 } }
local MESSAGE = { { "ses.message_id", 2, 2 } }
local LENGTH = { { "ses.request_length", 2, 2 } }
local TARGET = { { "ses.buffer_offset", 12, 8 }, { "ses.initiator", 20, 4 }, { "ses.memory_key", 24, 8 } }
local first_standard = header("Standard request", 44, COMMON, MESSAGE, RESOURCE, TARGET,
  { { "ses.header_data", 32, 8 }, { "ses.message_length", 40, 4 } })
local later_standard = header("Standard request", 44, COMMON, MESSAGE, RESOURCE, TARGET,
  { { "ses.payload_length", 32, 4 }, { "ses.message_offset", 36, 4 }, { "ses.message_length", 40, 4 } })
local CODE = { { "ses.list", 0, 1 }, { "ses.response", 0, 1 }, { "ses.version", 1, 1 }, { "ses.return_code", 1, 1 } }
local SEMANTICS = {
  [1] = header("Small request", 20, COMMON, LENGTH, RESOURCE, { { "ses.buffer_offset", 12, 8 } }),
  [2] = header("Medium request", 32, COMMON, LENGTH, RESOURCE,
    { { "ses.header_data", 12, 8 }, { "ses.initiator", 20, 4 }, { "ses.memory_key", 24, 8 } }),
  [4] = header("Response", 12, CODE, MESSAGE, { { "ses.ri_generation", 4, 1 }, { "ses.job_id", 5, 3 },
    { "ses.modified_length", 8, 4 } }),
  [5] = header("Response with data", 20, CODE, MESSAGE, { { "ses.job_id", 5, 3 }, { "ses.read_message_id", 8, 2 },
    { "ses.response_length", 10, 2 }, { "ses.modified_length", 12, 4 }, { "ses.message_offset", 16, 4 } }),
  [6] = header("Response with small data", 12, CODE, { { "ses.response_length", 2, 2 }, { "ses.job_id", 5, 3 },
    { "ses.original_psn", 8, 4 } }),
}

-- The headers of packet delivery of a type, as far as the bytes that are there tell; nil: not known.
local function delivery_headers(type, first, buffer)
  local syn = bit.band(first, 0x0004) ~= 0
  if type == 2 or type == 3 then return { syn and opening_request or request } end
  if type == 13 or type == 14 then return { syn and opening_request or request, credit_target } end
  if type == 4 or type == 5 then return { idempotent } end
  if type == 6 then return { unreliable } end
  if type == 10 then return { nack } end
  if type == 11 then return { syn and opening_control or control } end
  if type == 12 then return { nack, cc_state } end
  local answer = bit.band(first, 0x0008) ~= 0 and probe_ack or ack
  if type == 7 then return { answer } end
  if type == 8 then return { answer, buffer:len() > 12 and ACK_STATES[bit.rshift(buffer(12, 1):uint(), 4)] or ack_state } end
  if type == 9 then return { answer, ack_state } end
  return nil
end

-- Deferrable sends and the answer to them have tokens in place of an offset (docs/uet.md).
local function semantics_header(next_header, at, buffer)
  if next_header ~= 3 then return SEMANTICS[next_header] end
  if buffer:len() < at + 2 then return first_standard end
  local opcode = bit.band(buffer(at, 1):uint(), 0x3F)
  local first = bit.band(buffer(at + 1, 1):uint(), 0x01) ~= 0
  return (first or opcode == 0x08 or opcode == 0x0B or opcode == 0x0C) and first_standard or later_standard
end

local function add_header(one, at, buffer, tree)
  local branch = tree:add(buffer(at, one.bytes), one.title)
  for _, entry in ipairs(one.entries) do branch:add(f[entry[1]], buffer(at + entry[2], entry[3])) end
end

local function number(code, words, kind) return words[code] or string.format("%s 0x%02x", kind, code) end

-- What the column of the packet list says of packet delivery; the whole header is there.
local function delivery_line(type, first, buffer)
  if type == 6 then return TYPES[type] end
  if type == 4 or type == 5 then return string.format("%s %d", TYPES[type], buffer(4, 4):uint()) end
  local syn = bit.band(first, 0x0004) ~= 0
  local place = buffer(10, 2):uint()
  local opens = syn and type ~= 7 and type ~= 8 and type ~= 9 and type ~= 10 and type ~= 12
  local there = opens and string.format("SYN+%d", bit.band(place, 0x0FFF)) or tostring(place)
  local line = string.format("%s PDC=%d>%s ", TYPES[type], buffer(8, 2):uint(), there)
  if type == 7 or type == 8 or type == 9 then
    line = line .. string.format("cumulative=%d", buffer(4, 4):uint())
    if type ~= 7 then line = line .. " bitmap=0x" .. buffer(16, 8):uint64():tohex() end
  elseif type == 10 or type == 12 then
    line = line .. string.format("%s %d", number(buffer(2, 1):uint(), CODES, "code"), buffer(4, 4):uint())
  elseif type == 11 then
    local what = bit.rshift(bit.band(first, 0x0780), 7)
    line = line .. string.format("%s PSN=%d", number(what, CONTROLS, "type"), buffer(4, 4):uint())
  else
    line = line .. string.format("PSN=%d", buffer(4, 4):uint())
  end
  if bit.band(first, 0x0010) ~= 0 then line = line .. " retransmission" end
  return line
end

local function semantics_line(next_header, at, buffer)
  local code = bit.band(buffer(at, 1):uint(), 0x3F)
  if next_header <= 2 then
    return string.format(", %s of %d bytes", number(code, OPERATIONS, "operation"), bit.band(buffer(at + 2, 2):uint(), 0x3FFF))
  elseif next_header == 3 then
    return string.format(", %s message %d of %d bytes", number(code, OPERATIONS, "operation"), buffer(at + 2, 2):uint(),
      buffer(at + 40, 4):uint())
  end
  local returned = number(bit.band(buffer(at + 1, 1):uint(), 0x3F), RETURN_CODES, "code")
  if next_header == 6 then return string.format(", data for PSN %d: %s", buffer(at + 8, 4):uint(), returned) end
  return string.format(", response to message %d: %s", buffer(at + 2, 2):uint(), returned)
end

function uet.dissector(buffer, packet, root)
  if buffer:len() < 4 then return 0 end
  local first = buffer(0, 2):uint()
  local type = bit.rshift(first, 11)
  packet.cols.protocol = "UET"
  local tree = root:add(uet, buffer())
  local headers = delivery_headers(type, first, buffer)
  if headers == nil then
    packet.cols.info = number(type, TYPES, "type")
    tree:add(f["pds.type"], buffer(0, 2))
    tree:add_proto_expert_info(strange)
    return buffer:len()
  end
  packet.cols.info = TYPES[type]
  local at = 0
  for index, one in ipairs(headers) do
    if buffer:len() < at + one.bytes then
      if index == 1 then tree:add(f["pds.type"], buffer(0, 2)) end
      tree:add_proto_expert_info(cut)
      return buffer:len()
    end
    add_header(one, at, buffer, tree)
    at = at + one.bytes
  end
  packet.cols.info = delivery_line(type, first, buffer)
  local next_header = type == 11 and 0 or bit.rshift(bit.band(first, 0x0780), 7)
  if next_header ~= 0 then
    local one = semantics_header(next_header, at, buffer)
    if one == nil then
      tree:add_proto_expert_info(strange)
      return buffer:len()
    end
    if buffer:len() < at + one.bytes then
      tree:add_proto_expert_info(cut)
      return buffer:len()
    end
    add_header(one, at, buffer, tree)
    packet.cols.info:append(semantics_line(next_header, at, buffer))
    at = at + one.bytes
  end
  if buffer:len() > at then tree:add(f.payload, buffer(at)) end
  return buffer:len()
end

local ports = DissectorTable.get("udp.port")
local taken
local function take_port(port)
  if taken ~= nil then ports:remove(taken, uet) end
  ports:add(port, uet)
  taken = port
end
uet.prefs.port = Pref.uint("UDP port", 4793, "the destination port that carries UET")
function uet.prefs_changed() take_port(uet.prefs.port) end
take_port(4793)
