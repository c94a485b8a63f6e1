-- MRC (OCP Multipath Reliable Connection) for Wireshark 4: `tshark -X lua_script:mrc.lua`, or a file among the personal plugins.
-- It takes UDP port 4971 (a preference), and on 4791 what has an opcode of MRC, before RoCEv2's dissector.

local mrc = Proto("mrc", "Multipath Reliable Connection")
local ROCE_PORT = 4791
local BTH_BYTES, ICRC_BYTES = 12, 4

local OPCODES = {
  [0xC6] = "Write first", [0xC7] = "Write middle", [0xC8] = "Write last", [0xC9] = "Write last with immediate",
  [0xCA] = "Write only", [0xCB] = "Write only with immediate", [0xD1] = "Transport acknowledgement",
  [0xD8] = "Endpoint request", [0xD9] = "Endpoint response", [0xDC] = "SACK", [0xDD] = "NACK", [0xDE] = "Probe",
}
local REASONS = {
  [0x01] = "trimmed", [0x02] = "trimmed at the last hop", [0x06] = "no bitmap", [0x07] = "no packet buffer",
  [0x0A] = "no resource", [0x0B] = "PSN out of window", [0x19] = "unexpected event",
}
local MARKS = { [0] = "none", [1] = "skip once", [2] = "always skip" }
local OPERATIONS = { [0] = "port status", [1] = "entropy probe" }

local f = {}
local function field(name, kind, title, base, words, mask)
  f[name] = ProtoField[kind]("mrc." .. name, title, base, words, mask)
end
local function flag(name, title, mask)
  f[name] = ProtoField.bool("mrc." .. name, title, 8, nil, mask)
end
field("opcode", "uint8", "Opcode", base.HEX, OPCODES)
field("pad", "uint8", "Pad bytes", base.DEC, nil, 0x30)
field("version", "uint8", "Transport version", base.DEC, nil, 0x0F)
field("p_key", "uint16", "Partition key", base.HEX)
field("dest_qpn", "uint24", "Destination queue pair", base.HEX)
flag("sack_req", "SACK requested", 0x80)
flag("rtx", "Retransmission", 0x20)
flag("ts", "TSETH follows", 0x10)
field("psn", "uint24", "Packet sequence number", base.DEC)
field("rqmsn", "uint16", "Receive queue message number", base.DEC)
field("msn", "uint24", "Message sequence number", base.DEC)
field("tx_timestamp", "uint16", "Timestamp", base.DEC)
field("va", "uint64", "Virtual address", base.HEX)
field("rkey", "uint32", "Remote key", base.HEX)
field("dma_bytes", "uint32", "Length of the message", base.DEC)
field("imm", "uint32", "Immediate data", base.HEX)
field("syndrome", "uint8", "Syndrome", base.HEX)
field("mark", "uint8", "Entropy mark", base.DEC, MARKS, 0x60)
flag("answers_probe", "Answers a probe", 0x02)
field("ack_psn_offset", "int16", "PSN that caused it, from the cumulative one", base.DEC)
field("probe_id", "uint16", "Probe", base.DEC)
field("entropy", "uint32", "Entropy value", base.HEX)
field("sender_id", "uint16", "Sender (spdcid)", base.HEX)
field("receiver_id", "uint16", "Receiver (dpdcid)", base.HEX)
field("cack_psn", "uint24", "Cumulative PSN", base.DEC)
field("cc_type", "uint8", "Congestion control", base.DEC, nil, 0xF0)
field("cc_flags", "uint8", "Flags of congestion control", base.HEX, nil, 0x0F)
field("window", "uint8", "Window in 128 PSNs", base.DEC)
field("sack_offset", "int16", "First PSN of the bitmap, from the cumulative one", base.DEC)
field("sack_bitmap", "uint64", "SACK bitmap", base.HEX)
field("out_of_order", "uint16", "Packets out of order", base.DEC, nil, 0x7FFF)
flag("restore_window", "Restore the window", 0x80)
field("window_penalty", "uint8", "Penalty of the window", base.DEC, nil, 0x7F)
field("received", "uint24", "Received, in 256 bytes", base.DEC)
field("reason", "uint8", "Reason", base.HEX, REASONS)
field("vendor", "uint8", "Of the vendor", base.HEX)
field("nack_psn", "uint24", "PSN not taken", base.DEC)
field("request_op", "uint8", "Operation", base.DEC, OPERATIONS, 0x03)
field("response_op", "uint8", "Operation", base.DEC, OPERATIONS, 0x0C)
field("port_mask", "uint32", "Usable ports", base.HEX)
f.payload = ProtoField.bytes("mrc.payload", "Payload")
f.icrc = ProtoField.uint32("mrc.icrc", "Invariant CRC", base.HEX)
mrc.fields = f
local cut = ProtoExpert.new("mrc.cut", "Cut before the end of its headers", expert.group.MALFORMED, expert.severity.NOTE)
mrc.experts = { cut }

-- {field, offset, bytes} by header, and the header's bytes; the offsets are from its beginning.
local HEADERS = {
  meth = { 4, { "rqmsn", 0, 2 }, { "msn", 2, 2 } },
  tseth = { 4, { "tx_timestamp", 0, 2 } },
  reth = { 16, { "va", 0, 8 }, { "rkey", 8, 4 }, { "dma_bytes", 12, 4 } },
  immdt = { 4, { "imm", 0, 4 } },
  aeth = { 4, { "syndrome", 0, 1 }, { "msn", 1, 3 } },
  seth = { 28, { "mark", 1, 1 }, { "answers_probe", 1, 1 }, { "entropy", 4, 4 }, { "sender_id", 8, 2 },
    { "receiver_id", 10, 2 }, { "cack_psn", 13, 3 }, { "cc_type", 16, 1 }, { "cc_flags", 16, 1 }, { "window", 17, 1 },
    { "sack_offset", 18, 2 }, { "sack_bitmap", 20, 8 } },
  cc_state = { 8, { "tx_timestamp", 0, 2 }, { "out_of_order", 2, 2 }, { "restore_window", 4, 1 },
    { "window_penalty", 4, 1 }, { "received", 5, 3 } },
  neth = { 20, { "reason", 2, 1 }, { "vendor", 3, 1 }, { "entropy", 4, 4 }, { "sender_id", 8, 2 },
    { "receiver_id", 10, 2 }, { "nack_psn", 13, 3 }, { "cc_type", 16, 1 }, { "cc_flags", 16, 1 },
    { "tx_timestamp", 18, 2 } },
  peth = { 16, { "vendor", 3, 1 }, { "probe_id", 4, 2 }, { "sender_id", 8, 2 }, { "receiver_id", 10, 2 },
    { "tx_timestamp", 12, 2 } },
  erth = { 16, { "request_op", 1, 1 }, { "vendor", 3, 1 }, { "port_mask", 4, 4 }, { "tx_timestamp", 12, 2 } },
  eeth = { 36, { "response_op", 1, 1 }, { "tx_timestamp", 28, 2 } },
}

local function headers_after_bth(opcode, has_tseth)
  if opcode <= 0xCB then
    local names = { "meth" }
    if has_tseth then names[#names + 1] = "tseth" end
    names[#names + 1] = "reth"
    if opcode == 0xC9 or opcode == 0xCB then names[#names + 1] = "immdt" end
    return names
  end
  return ({ [0xD1] = { "aeth" }, [0xD8] = { "erth" }, [0xD9] = { "eeth" }, [0xDC] = { "seth", "cc_state" },
    [0xDD] = { "neth" }, [0xDE] = { "peth" } })[opcode]
end

local function add_bth(buffer, tree)
  local bth = tree:add(buffer(0, BTH_BYTES), "Base transport header")
  bth:add(f.opcode, buffer(0, 1))
  bth:add(f.pad, buffer(1, 1))
  bth:add(f.version, buffer(1, 1))
  bth:add(f.p_key, buffer(2, 2))
  bth:add(f.dest_qpn, buffer(5, 3))
  bth:add(f.sack_req, buffer(8, 1))
  bth:add(f.rtx, buffer(8, 1))
  bth:add(f.ts, buffer(8, 1))
  bth:add(f.psn, buffer(9, 3))
end

local function add_header(name, buffer, at, tree)
  local header = tree:add(buffer(at, HEADERS[name][1]), name:upper())
  for index = 2, #HEADERS[name] do
    local entry = HEADERS[name][index]
    header:add(f[entry[1]], buffer(at + entry[2], entry[3]))
  end
  if name == "seth" then
    local answers_probe = bit.band(buffer(at + 1, 1):uint(), 2) ~= 0
    header:add(answers_probe and f.probe_id or f.ack_psn_offset, buffer(at + 2, 2))
  end
end

local function line_of(opcode, buffer)
  local line = string.format("%s QP=0x%06x PSN=%d", OPCODES[opcode], buffer(5, 3):uint(), buffer(9, 3):uint())
  if bit.band(buffer(8, 1):uint(), 0x20) ~= 0 then line = line .. " retransmission" end
  if opcode == 0xDC and buffer:len() >= BTH_BYTES + 28 then
    line = line .. string.format(" cumulative=%d bitmap=0x%s", buffer(BTH_BYTES + 13, 3):uint(),
      buffer(BTH_BYTES + 20, 8):uint64():tohex())
  elseif opcode == 0xDD and buffer:len() >= BTH_BYTES + 20 then
    local reason = buffer(BTH_BYTES + 2, 1):uint()
    line = line .. string.format(" %s %d", REASONS[reason] or string.format("reason 0x%02x", reason),
      buffer(BTH_BYTES + 13, 3):uint())
  end
  return line
end

function mrc.dissector(buffer, packet, root)
  if buffer:len() < BTH_BYTES then return 0 end
  local opcode = buffer(0, 1):uint()
  if OPCODES[opcode] == nil then return 0 end
  packet.cols.protocol = "MRC"
  packet.cols.info = line_of(opcode, buffer)
  local tree = root:add(mrc, buffer())
  add_bth(buffer, tree)
  local at = BTH_BYTES
  for _, name in ipairs(headers_after_bth(opcode, bit.band(buffer(8, 1):uint(), 0x10) ~= 0)) do
    if buffer:len() < at + HEADERS[name][1] then
      tree:add_proto_expert_info(cut)
      return buffer:len()
    end
    add_header(name, buffer, at, tree)
    at = at + HEADERS[name][1]
  end
  local payload = buffer:len() - at - ICRC_BYTES
  local whole = buffer:len() == buffer:reported_len()
  if whole and payload > 0 then tree:add(f.payload, buffer(at, payload)) end
  if whole and payload >= 0 then tree:add(f.icrc, buffer(at + payload, ICRC_BYTES)) end
  return buffer:len()
end

local ports = DissectorTable.get("udp.port")
local taken
local function take_port(port)
  if taken ~= nil then ports:remove(taken, mrc) end
  ports:add(port, mrc)
  taken = port
end
mrc.prefs.port = Pref.uint("UDP port", 4971, "the destination port that carries MRC")
function mrc.prefs_changed() take_port(mrc.prefs.port) end
take_port(4971)

-- A port has one dissector: on RoCEv2's, what is not MRC goes on to the one that was there.
local roce = ports:get_dissector(ROCE_PORT)
local shared = Proto("mrc_or_roce", "MRC or RoCEv2 by opcode")
function shared.dissector(buffer, packet, root)
  if buffer:len() > 0 and OPCODES[buffer(0, 1):uint()] ~= nil then return mrc.dissector(buffer, packet, root) end
  return roce ~= nil and roce:call(buffer, packet, root) or 0
end
ports:add(ROCE_PORT, shared)
