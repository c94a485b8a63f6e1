-- UET (Ultra Ethernet Transport 1.0) for Wireshark 4.0 to 4.4: `tshark -X lua_script:uet.lua`, or a file among the personal
-- plugins. It dissects UDP port 4793 (a preference). A Wireshark that has a dissector named uet of its own keeps that one.
-- Layouts are those of docs/uet.md, without encryption (TSS) and without a CRC.

for _, name in ipairs(Dissector.list()) do
  if name == "uet" then return end
end

local uet = Proto("uet", "Ultra Ethernet Transport")

-- BEGIN: written by tools/write_dissectors.py from the layouts in traffic/native/wire
-- {kind, meaning, names of values} by field.
local FIELDS = {
  ["pds.ack_psn_offset"] = { "int", "PSN acknowledged, relative to the cumulative PSN" },
  ["pds.ack_request"] = { "bool", "Acknowledgement requested" },
  ["pds.answers_probe"] = { "bool", "Answers a probe" },
  ["pds.cack_psn"] = { "uint", "Cumulative PSN: all up to here were received" },
  ["pds.cc_flags"] = { "uint", "Congestion control flags" },
  ["pds.cc_state"] = { "uint", "Congestion control state" },
  ["pds.cc_type"] = { "uint", "Congestion control type", {
    [0] = "nscc", [1] = "credit",
  } },
  ["pds.ccc_id"] = { "uint", "Congestion control context" },
  ["pds.clear_psn_offset"] = { "int", "Highest PSN whose response may be cleared, relative to the PSN" },
  ["pds.control_type"] = { "uint", "Control type", {
    [0] = "noop", [1] = "ack request", [2] = "clear command", [3] = "clear request", [4] = "close command", [5] = "close request",
    [6] = "probe", [7] = "credit", [8] = "credit request", [9] = "negotiation",
  } },
  ["pds.credit"] = { "uint", "Credit granted in all, in 256 bytes" },
  ["pds.credit_target"] = { "uint", "Credit requested, in 256 bytes" },
  ["pds.dpdcid"] = { "uint", "Destination PDC identifier" },
  ["pds.marked"] = { "bool", "Packet received was ECN-marked" },
  ["pds.mpr"] = { "uint", "Maximum PSN range, in 128 PSNs" },
  ["pds.nack_code"] = { "uint", "NACK code", {
    [1] = "trimmed", [2] = "trimmed last hop", [3] = "trimmed ack", [4] = "no pdc", [5] = "no congestion context",
    [6] = "no bitmap", [7] = "no packet buffer", [8] = "no guaranteed delivery", [9] = "no message", [10] = "no resource",
    [11] = "psn out of window", [13] = "rod out of order", [14] = "invalid dpdcid", [15] = "header mismatch", [16] = "closing",
    [17] = "closing in error", [18] = "packet not received", [19] = "response unavailable", [20] = "ack with data",
    [21] = "invalid syn", [22] = "mode mismatch", [23] = "new start psn", [24] = "received in process", [25] = "unexpected event",
    [26] = "loss inferred",
  } },
  ["pds.next_header"] = { "uint", "Next header", {
    [0] = "none", [1] = "small", [2] = "medium", [3] = "standard", [4] = "response", [5] = "response with data",
    [6] = "response with small data",
  } },
  ["pds.of_rudi"] = { "bool", "Packet refused used RUDI" },
  ["pds.ooo_count"] = { "uint", "Packets received out of order" },
  ["pds.payload"] = { "uint", "Payload" },
  ["pds.pkt_id"] = { "uint", "Packet identifier" },
  ["pds.probe_opaque"] = { "uint", "Probe identifier" },
  ["pds.psn"] = { "uint", "Packet sequence number or packet identifier" },
  ["pds.psn_offset"] = { "uint", "Offset of the PSN from the first PSN of the PDC" },
  ["pds.rcv_cwnd_pend"] = { "uint", "Receiver's congestion window penalty" },
  ["pds.rcvd_bytes"] = { "uint", "Bytes received, in 256 bytes" },
  ["pds.request"] = { "uint", "Target requests", {
    [0] = "none", [1] = "clear", [2] = "close",
  } },
  ["pds.restore_cwnd"] = { "bool", "Restore the congestion window" },
  ["pds.retransmitted"] = { "bool", "Retransmission" },
  ["pds.rod"] = { "bool", "PDC uses ROD" },
  ["pds.sack_bitmap"] = { "uint", "PSNs received, lowest bit first" },
  ["pds.sack_psn_offset"] = { "int", "PSN of the bitmap's lowest bit, relative to the cumulative PSN" },
  ["pds.service_time"] = { "uint", "Service time, in 128 ns" },
  ["pds.spdcid"] = { "uint", "Source PDC identifier" },
  ["pds.syn"] = { "bool", "SYN" },
  ["pds.type"] = { "uint", "PDS type", {
    [1] = "tss", [2] = "rud request", [3] = "rod request", [4] = "rudi request", [5] = "rudi response", [6] = "uud request",
    [7] = "ack", [8] = "ack cc", [9] = "ack ccx", [10] = "nack", [11] = "control", [12] = "nack ccx", [13] = "rud cc request",
    [14] = "rod cc request",
  } },
  ["pds.use_rsv_pdc"] = { "bool", "Use a reserved PDC" },
  ["pds.vendor_code"] = { "uint", "Vendor code" },
  ["ses.buffer_offset"] = { "uint", "Buffer offset" },
  ["ses.dc"] = { "bool", "Delivery complete" },
  ["ses.eom"] = { "bool", "End of message" },
  ["ses.hd"] = { "bool", "Header data present" },
  ["ses.header_data"] = { "uint", "Header data" },
  ["ses.ie"] = { "bool", "Initiator error" },
  ["ses.initiator"] = { "uint", "Initiator" },
  ["ses.job_id"] = { "uint", "Job identifier" },
  ["ses.list"] = { "uint", "List", {
    [0] = "expected", [1] = "overflow",
  } },
  ["ses.memory_key"] = { "uint", "Memory key or match bits" },
  ["ses.message_id"] = { "uint", "Message identifier" },
  ["ses.message_length"] = { "uint", "Message length, in bytes" },
  ["ses.message_offset"] = { "uint", "Offset in the message, in bytes" },
  ["ses.modified_length"] = { "uint", "Modified length, in bytes" },
  ["ses.opcode"] = { "uint", "Operation", {
    [0] = "noop", [1] = "write", [2] = "read", [3] = "atomic", [4] = "fetch atomic", [5] = "send", [6] = "rendezvous send",
    [7] = "datagram", [8] = "deferrable send", [9] = "tagged send", [10] = "rendezvous tagged send",
    [11] = "deferrable tagged send", [12] = "ready to restart", [13] = "tagged send atomic", [14] = "tagged send fetch atomic",
    [15] = "message error",
  } },
  ["ses.original_psn"] = { "uint", "PSN of the request" },
  ["ses.payload_length"] = { "uint", "Payload length, in bytes" },
  ["ses.pid_on_fep"] = { "uint", "Process on the fabric endpoint" },
  ["ses.read_message_id"] = { "uint", "Message identifier of the read request" },
  ["ses.rel"] = { "bool", "Relative address: by job, process and resource; otherwise by key alone" },
  ["ses.request_length"] = { "uint", "Request length, in bytes" },
  ["ses.resource_index"] = { "uint", "Resource index" },
  ["ses.response"] = { "uint", "Response", {
    [0] = "normal", [1] = "response", [2] = "with data", [3] = "none",
  } },
  ["ses.response_length"] = { "uint", "Payload length, in bytes" },
  ["ses.return_code"] = { "uint", "Return code", {
    [0] = "null", [1] = "ok", [2] = "bad generation", [3] = "disabled", [5] = "no match", [6] = "unsupported operation",
    [7] = "unsupported size", [9] = "bad translation", [12] = "out of range", [23] = "permission violation", [25] = "bad index",
    [26] = "bad process", [27] = "bad job", [28] = "bad key", [29] = "bad address", [30] = "cancelled", [34] = "too long",
    [35] = "initiator error", [36] = "dropped",
  } },
  ["ses.ri_generation"] = { "uint", "Generation of the resource index" },
  ["ses.som"] = { "bool", "Start of message" },
  ["ses.version"] = { "uint", "Version" },
}
-- {field, first bit, bits} in wire order; a header whose layout depends on a flag has two forms.
local HEADERS = {
  request = { title = "Request", bytes = 12,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 }, { "pds.retransmitted", 11, 1 }, { "pds.ack_request", 12, 1 },
    { "pds.syn", 13, 1 }, { "pds.clear_psn_offset", 16, 16 }, { "pds.psn", 32, 32 }, { "pds.spdcid", 64, 16 },
    { "pds.dpdcid", 80, 16 },
  },
  request_syn = { title = "Request", bytes = 12,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 }, { "pds.retransmitted", 11, 1 }, { "pds.ack_request", 12, 1 },
    { "pds.syn", 13, 1 }, { "pds.clear_psn_offset", 16, 16 }, { "pds.psn", 32, 32 }, { "pds.spdcid", 64, 16 },
    { "pds.use_rsv_pdc", 80, 1 }, { "pds.psn_offset", 84, 12 },
  },
  credit_target = { title = "Credit target", bytes = 4,
    { "pds.ccc_id", 0, 8 }, { "pds.credit_target", 8, 24 },
  },
  idempotent = { title = "Idempotent", bytes = 8,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 }, { "pds.marked", 10, 1 }, { "pds.retransmitted", 11, 1 },
    { "pds.pkt_id", 32, 32 },
  },
  unreliable = { title = "Unreliable", bytes = 4,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 },
  },
  ack = { title = "Ack", bytes = 12,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 }, { "pds.marked", 10, 1 }, { "pds.retransmitted", 11, 1 },
    { "pds.answers_probe", 12, 1 }, { "pds.request", 13, 2 }, { "pds.ack_psn_offset", 16, 16 }, { "pds.cack_psn", 32, 32 },
    { "pds.spdcid", 64, 16 }, { "pds.dpdcid", 80, 16 },
  },
  ack_probe = { title = "Ack", bytes = 12,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 }, { "pds.marked", 10, 1 }, { "pds.retransmitted", 11, 1 },
    { "pds.answers_probe", 12, 1 }, { "pds.request", 13, 2 }, { "pds.probe_opaque", 16, 16 }, { "pds.cack_psn", 32, 32 },
    { "pds.spdcid", 64, 16 }, { "pds.dpdcid", 80, 16 },
  },
  ack_state = { title = "Ack state", bytes = 20,
    { "pds.cc_type", 0, 4 }, { "pds.cc_flags", 4, 4 }, { "pds.mpr", 8, 8 }, { "pds.sack_psn_offset", 16, 16 },
    { "pds.sack_bitmap", 32, 64 }, { "pds.cc_state", 96, 64 },
  },
  nscc_state = { title = "Nscc state", bytes = 8,
    { "pds.service_time", 0, 16 }, { "pds.restore_cwnd", 16, 1 }, { "pds.rcv_cwnd_pend", 17, 7 }, { "pds.rcvd_bytes", 24, 24 },
    { "pds.ooo_count", 48, 16 },
  },
  credit_state = { title = "Credit state", bytes = 8,
    { "pds.credit", 0, 24 }, { "pds.ooo_count", 48, 16 },
  },
  nack = { title = "Nack", bytes = 16,
    { "pds.type", 0, 5 }, { "pds.next_header", 5, 4 }, { "pds.marked", 10, 1 }, { "pds.retransmitted", 11, 1 },
    { "pds.of_rudi", 12, 1 }, { "pds.nack_code", 16, 8 }, { "pds.vendor_code", 24, 8 }, { "pds.psn", 32, 32 },
    { "pds.spdcid", 64, 16 }, { "pds.dpdcid", 80, 16 }, { "pds.payload", 96, 32 },
  },
  ccx_state = { title = "Ccx state", bytes = 8,
    { "pds.cc_state", 0, 64 },
  },
  control = { title = "Control", bytes = 16,
    { "pds.type", 0, 5 }, { "pds.control_type", 5, 4 }, { "pds.rod", 10, 1 }, { "pds.retransmitted", 11, 1 },
    { "pds.ack_request", 12, 1 }, { "pds.syn", 13, 1 }, { "pds.probe_opaque", 16, 16 }, { "pds.psn", 32, 32 },
    { "pds.spdcid", 64, 16 }, { "pds.dpdcid", 80, 16 }, { "pds.payload", 96, 32 },
  },
  control_syn = { title = "Control", bytes = 16,
    { "pds.type", 0, 5 }, { "pds.control_type", 5, 4 }, { "pds.rod", 10, 1 }, { "pds.retransmitted", 11, 1 },
    { "pds.ack_request", 12, 1 }, { "pds.syn", 13, 1 }, { "pds.probe_opaque", 16, 16 }, { "pds.psn", 32, 32 },
    { "pds.spdcid", 64, 16 }, { "pds.use_rsv_pdc", 80, 1 }, { "pds.psn_offset", 84, 12 }, { "pds.payload", 96, 32 },
  },
  standard_request = { title = "Standard request", bytes = 44,
    { "ses.opcode", 2, 6 }, { "ses.version", 8, 2 }, { "ses.dc", 10, 1 }, { "ses.ie", 11, 1 }, { "ses.rel", 12, 1 },
    { "ses.hd", 13, 1 }, { "ses.eom", 14, 1 }, { "ses.som", 15, 1 }, { "ses.message_id", 16, 16 }, { "ses.ri_generation", 32, 8 },
    { "ses.job_id", 40, 24 }, { "ses.pid_on_fep", 68, 12 }, { "ses.resource_index", 84, 12 }, { "ses.buffer_offset", 96, 64 },
    { "ses.initiator", 160, 32 }, { "ses.memory_key", 192, 64 }, { "ses.payload_length", 274, 14 },
    { "ses.message_offset", 288, 32 }, { "ses.message_length", 320, 32 },
  },
  standard_request_first = { title = "Standard request", bytes = 44,
    { "ses.opcode", 2, 6 }, { "ses.version", 8, 2 }, { "ses.dc", 10, 1 }, { "ses.ie", 11, 1 }, { "ses.rel", 12, 1 },
    { "ses.hd", 13, 1 }, { "ses.eom", 14, 1 }, { "ses.som", 15, 1 }, { "ses.message_id", 16, 16 }, { "ses.ri_generation", 32, 8 },
    { "ses.job_id", 40, 24 }, { "ses.pid_on_fep", 68, 12 }, { "ses.resource_index", 84, 12 }, { "ses.buffer_offset", 96, 64 },
    { "ses.initiator", 160, 32 }, { "ses.memory_key", 192, 64 }, { "ses.header_data", 256, 64 },
    { "ses.message_length", 320, 32 },
  },
  medium_request = { title = "Medium request", bytes = 32,
    { "ses.opcode", 2, 6 }, { "ses.version", 8, 2 }, { "ses.dc", 10, 1 }, { "ses.ie", 11, 1 }, { "ses.rel", 12, 1 },
    { "ses.hd", 13, 1 }, { "ses.eom", 14, 1 }, { "ses.som", 15, 1 }, { "ses.request_length", 18, 14 },
    { "ses.ri_generation", 32, 8 }, { "ses.job_id", 40, 24 }, { "ses.pid_on_fep", 68, 12 }, { "ses.resource_index", 84, 12 },
    { "ses.header_data", 96, 64 }, { "ses.initiator", 160, 32 }, { "ses.memory_key", 192, 64 },
  },
  small_request = { title = "Small request", bytes = 20,
    { "ses.opcode", 2, 6 }, { "ses.version", 8, 2 }, { "ses.dc", 10, 1 }, { "ses.ie", 11, 1 }, { "ses.rel", 12, 1 },
    { "ses.hd", 13, 1 }, { "ses.eom", 14, 1 }, { "ses.som", 15, 1 }, { "ses.request_length", 18, 14 },
    { "ses.ri_generation", 32, 8 }, { "ses.job_id", 40, 24 }, { "ses.pid_on_fep", 68, 12 }, { "ses.resource_index", 84, 12 },
    { "ses.buffer_offset", 96, 64 },
  },
  response = { title = "Response", bytes = 12,
    { "ses.list", 0, 2 }, { "ses.response", 2, 6 }, { "ses.version", 8, 2 }, { "ses.return_code", 10, 6 },
    { "ses.message_id", 16, 16 }, { "ses.ri_generation", 32, 8 }, { "ses.job_id", 40, 24 }, { "ses.modified_length", 64, 32 },
  },
  response_with_data = { title = "Response with data", bytes = 20,
    { "ses.list", 0, 2 }, { "ses.response", 2, 6 }, { "ses.version", 8, 2 }, { "ses.return_code", 10, 6 },
    { "ses.message_id", 16, 16 }, { "ses.job_id", 40, 24 }, { "ses.read_message_id", 64, 16 }, { "ses.response_length", 82, 14 },
    { "ses.modified_length", 96, 32 }, { "ses.message_offset", 128, 32 },
  },
  response_with_small_data = { title = "Response with small data", bytes = 12,
    { "ses.list", 0, 2 }, { "ses.response", 2, 6 }, { "ses.version", 8, 2 }, { "ses.return_code", 10, 6 },
    { "ses.response_length", 18, 14 }, { "ses.job_id", 40, 24 }, { "ses.original_psn", 64, 32 },
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

local fields = declare_fields("uet")
local payload = ProtoField.bytes("uet.payload", "Payload")
fields[#fields + 1] = payload
uet.fields = fields
local cut = ProtoExpert.new("uet.cut", "Cut before the end of its headers", expert.group.MALFORMED, expert.severity.NOTE)
local unknown = ProtoExpert.new("uet.unknown", "Unknown type or next header", expert.group.UNDECODED, expert.severity.WARN)
uet.experts = { cut, unknown }

-- The first PDS header of each type, and the header that follows it within the PDS.
local PDS = {
  [2] = { "request" }, [3] = { "request" }, [4] = { "idempotent" }, [5] = { "idempotent" }, [6] = { "unreliable" },
  [7] = { "ack" }, [8] = { "ack", "ack_state" }, [9] = { "ack", "ack_state" }, [10] = { "nack" }, [11] = { "control" },
  [12] = { "nack", "ccx_state" }, [13] = { "request", "credit_target" }, [14] = { "request", "credit_target" },
}
local SES = {
  [1] = "small_request", [2] = "medium_request", [3] = "standard_request", [4] = "response", [5] = "response_with_data",
  [6] = "response_with_small_data",
}
-- Layouts of the state of an ACK_CC, by its congestion control type.
local CC_STATES = { [0] = "nscc_state", [1] = "credit_state" }
-- Operations with restart tokens in place of an offset (docs/uet.md).
local DEFERRABLE = { [0x08] = true, [0x0B] = true, [0x0C] = true }

local function flag(name, field, buffer, at) return value_of(HEADERS[name], field, buffer, at) == 1 end

-- The form of a header by its flags, which must be in the buffer.
local function form_of(name, buffer, at)
  if name == "request" or name == "control" then return flag(name, "pds.syn", buffer, at) and name .. "_syn" or name end
  if name == "ack" then return flag(name, "pds.answers_probe", buffer, at) and "ack_probe" or name end
  if name ~= "standard_request" or buffer:len() < at + 2 then return name end
  local whole = flag(name, "ses.som", buffer, at) or DEFERRABLE[value_of(HEADERS[name], "ses.opcode", buffer, at)]
  return whole and "standard_request_first" or name
end

local function pds_line(type, values)
  local line = name_of("pds.type", type):upper()
  if values["pds.pkt_id"] then return line .. string.format(" %d", values["pds.pkt_id"]) end
  if values["pds.spdcid"] == nil then return line end
  local offset = values["pds.psn_offset"]
  line = line .. string.format(" PDC=%d>%s ", values["pds.spdcid"], offset and "SYN+" .. offset or values["pds.dpdcid"])
  if values["pds.cack_psn"] then
    line = line .. string.format("cumulative=%d", values["pds.cack_psn"])
    local bitmap = values["pds.sack_bitmap"]
    if bitmap then line = line .. " bitmap=0x" .. bitmap:tohex() end
  elseif values["pds.nack_code"] then
    line = line .. string.format("%s %d", name_of("pds.nack_code", values["pds.nack_code"]), values["pds.psn"])
  else
    local control = values["pds.control_type"]
    if control then line = line .. name_of("pds.control_type", control) .. " " end
    line = line .. string.format("PSN=%d", values["pds.psn"])
  end
  return values["pds.retransmitted"] == 1 and line .. " retransmission" or line
end

local function ses_line(values)
  local opcode, code = values["ses.opcode"], values["ses.return_code"]
  if values["ses.request_length"] then
    return string.format(", %s of %d bytes", name_of("ses.opcode", opcode), values["ses.request_length"])
  elseif opcode then
    return string.format(", %s message %d of %d bytes", name_of("ses.opcode", opcode), values["ses.message_id"],
      values["ses.message_length"])
  elseif values["ses.original_psn"] then
    return string.format(", data for PSN %d: %s", values["ses.original_psn"], name_of("ses.return_code", code))
  end
  return string.format(", response to message %d: %s", values["ses.message_id"], name_of("ses.return_code", code))
end

-- Add the headers to the tree and to the line of the packet list; return where the payload begins, or the
-- expert info that states why the headers end early.
local function add_headers(buffer, packet, tree)
  local type, values, at = value_of(HEADERS.request, "pds.type", buffer, 0), {}, 0
  packet.cols.info = name_of("pds.type", type):upper()
  if PDS[type] == nil then
    tree:add(HEADERS.request[1].field, buffer(0, 1))
    return nil, unknown
  end
  for index, name in ipairs(PDS[type]) do
    local state_at = at + HEADERS.ack_state.bytes - 8
    at = add_header(form_of(name, buffer, at), buffer, at, tree, values)
    if at == nil then
      if index == 1 then tree:add(HEADERS.request[1].field, buffer(0, 1)) end
      return nil, cut
    end
    local state = type == 8 and name == "ack_state" and CC_STATES[values["pds.cc_type"]]
    if state then add_header(state, buffer, state_at, tree, values) end
  end
  packet.cols.info = pds_line(type, values)
  local next_header = values["pds.next_header"] or 0
  if next_header == 0 then return at end
  local name = SES[next_header]
  if name == nil then return nil, unknown end
  at = add_header(form_of(name, buffer, at), buffer, at, tree, values)
  if at == nil then return nil, cut end
  packet.cols.info:append(ses_line(values))
  return at
end

function uet.dissector(buffer, packet, root)
  if buffer:len() < 4 then return 0 end
  packet.cols.protocol = "UET"
  local tree = root:add(uet, buffer())
  local at, reason = add_headers(buffer, packet, tree)
  if reason then tree:add_proto_expert_info(reason) end
  if at and buffer:len() > at then tree:add(payload, buffer(at)) end
  return buffer:len()
end

local ports = DissectorTable.get("udp.port")
local used_port
local function use_port(port)
  if used_port ~= nil then ports:remove(used_port, uet) end
  ports:add(port, uet)
  used_port = port
end
uet.prefs.port = Pref.uint("UDP port", 4793, "the destination port that carries UET")
function uet.prefs_changed() use_port(uet.prefs.port) end
use_port(4793)
