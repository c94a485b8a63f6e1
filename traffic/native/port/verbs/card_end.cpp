#include "port/verbs/card_end.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace etloop::verbs {

namespace {

constexpr uint32_t kDepth = 256;
constexpr int kCompletions = 8192;
constexpr uint32_t kMostMtu = 4096;
constexpr int32_t kMostReads = 16;

uint32_t mtu_code(uint32_t bytes) {
  uint32_t code = 1;
  while (code < 5 && (128U << code) < bytes) ++code;
  return code;
}

Error refused(const char* what, uint32_t qpn, int result) {
  return Error{std::string(what) + " queue pair " + std::to_string(qpn) + ": " + std::strerror(result)};
}

}  // namespace

Result<std::unique_ptr<CardEnd>> CardEnd::open(const std::string& device, const std::string& address) {
  auto opened = OpenDevice::open(device);
  if (!opened) return opened.error();
  const std::optional<IpAddress> own = IpAddress::parse(address);
  if (!own) return Error{address + " is not an address"};
  std::unique_ptr<CardEnd> end(new CardEnd(std::move(*opened)));
  const Result<uint32_t> index = end->device_->gid_index(*own);
  if (!index) return index.error();
  end->gid_index_ = *index;
  // A device without atomics rejects their permission.
  if (end->device_->attributes().atomics != 0) end->remote_access_ |= kRemoteAtomic;
  if (const auto made = end->device_->register_region(kRegionBytes, end->remote_access_); !made) return made.error();
  if (const auto made = end->device_->make_queue(kCompletions); !made) return made.error();
  const char* firmware = end->device_->attributes().firmware;
  end->firmware_.assign(firmware, strnlen(firmware, sizeof(DeviceAttributes::firmware)));
  return end;
}

Result<uint32_t> CardEnd::add_pair() {
  const Capacities capacities{kDepth, kDepth, 1, 1, 0};
  const Result<QueuePair*> made = device_->make_pair(capacities);
  if (!made) return made.error();
  PairAttributes attributes{};
  attributes.state = kInit;
  attributes.port = kDevicePort;
  attributes.access = kLocalWrite | remote_access_;
  constexpr uint32_t kMask = kSetState | kSetPkeyIndex | kSetPort | kSetAccess;
  if (const int result = device_->verbs().modify_qp(*made, &attributes, kMask); result != 0) {
    return refused("cannot set up", (*made)->number, result);
  }
  pairs_[(*made)->number] = *made;
  return (*made)->number;
}

Result<void> CardEnd::join(uint32_t qpn, const JoinSettings& settings) {
  const Result<QueuePair*> pair = pair_of(qpn);
  if (!pair) return pair.error();
  const std::optional<IpAddress> peer = IpAddress::parse(settings.peer_ip);
  if (!peer) return Error{settings.peer_ip + " is not an address"};
  PairAttributes attributes{};
  attributes.state = kReadyToReceive;
  attributes.path_mtu = mtu_code(std::min(settings.path_mtu, kMostMtu));
  attributes.destination_pair = settings.peer_qpn;
  attributes.receive_psn = settings.receive_psn;
  attributes.send_psn = settings.send_psn;
  attributes.min_rnr_timer = settings.min_rnr_timer;
  attributes.timeout = settings.timeout_code;
  attributes.retries = settings.retries;
  attributes.rnr_retries = settings.rnr_retries;
  const DeviceAttributes& can = device_->attributes();
  attributes.reads_in = static_cast<uint8_t>(std::clamp(can.most_reads_in, 0, kMostReads));
  attributes.reads_out = static_cast<uint8_t>(std::clamp(can.most_reads_out, 0, kMostReads));
  attributes.address.is_global = 1;
  attributes.address.port = kDevicePort;
  std::memcpy(attributes.address.route.destination.raw, peer->bytes.data(), 16);
  attributes.address.route.gid_index = static_cast<uint8_t>(gid_index_);
  attributes.address.route.hop_limit = settings.hop_limit;
  attributes.address.route.traffic_class = settings.traffic_class;
  constexpr uint32_t kToReceive =
      kSetState | kSetAddress | kSetPathMtu | kSetDestinationPair | kSetReceivePsn | kSetReadsIn | kSetMinRnrTimer;
  constexpr uint32_t kToSend = kSetState | kSetTimeout | kSetRetries | kSetRnrRetries | kSetSendPsn | kSetReadsOut;
  int result = device_->verbs().modify_qp(*pair, &attributes, static_cast<int>(kToReceive));
  if (result == 0) {
    attributes.state = kReadyToSend;
    result = device_->verbs().modify_qp(*pair, &attributes, static_cast<int>(kToSend));
  }
  if (result != 0) return refused("cannot join", qpn, result);
  return {};
}

Result<void> CardEnd::write(uint32_t qpn, uint32_t bytes) { return post(qpn, bytes, kWrite); }

Result<void> CardEnd::send(uint32_t qpn, uint32_t bytes) { return post(qpn, bytes, kSend); }

Result<void> CardEnd::post(uint32_t qpn, uint32_t bytes, SendOpcode opcode) {
  const Result<QueuePair*> pair = pair_of(qpn);
  if (!pair) return pair.error();
  if (bytes > kRegionBytes) return Error{std::to_string(bytes) + " bytes are more than the region has"};
  forget_completions();
  return post_on(*pair, bytes, opcode);
}

Result<void> CardEnd::write_on_all(uint32_t count, uint32_t bytes) {
  if (bytes > kRegionBytes) return Error{std::to_string(bytes) + " bytes are more than the region has"};
  if (!pairs_.empty()) forget_completions();
  for (uint32_t turn = 0; turn < count; ++turn) {
    for (const auto& [number, pair] : pairs_) {
      if (auto posted = post_on(pair, bytes, kWrite); !posted) return posted;
    }
  }
  return {};
}

Result<void> CardEnd::post_on(QueuePair* pair, uint32_t bytes, SendOpcode opcode) {
  Piece piece{va(), bytes, device_->lkey()};
  SendRequest request{};
  request.pieces = &piece;
  request.piece_count = bytes > 0 ? 1 : 0;
  request.opcode = opcode;
  request.flags = kSignaled;
  // The destination is not real memory: the answer is the experiment.
  request.remote_address = va();
  request.remote_rkey = 1;
  SendRequest* refused_request = nullptr;
  if (const int result = pair->context->operations.post_send(pair, &request, &refused_request); result != 0) {
    return refused("no work is taken by", pair->number, result);
  }
  return {};
}

Result<void> CardEnd::grant(uint32_t qpn, uint32_t bytes) {
  const Result<QueuePair*> pair = pair_of(qpn);
  if (!pair) return pair.error();
  if (bytes > kRegionBytes) return Error{std::to_string(bytes) + " bytes are more than the region has"};
  forget_completions();
  Piece piece{va(), bytes, device_->lkey()};
  ReceiveRequest request{};
  request.pieces = &piece;
  request.piece_count = bytes > 0 ? 1 : 0;
  ReceiveRequest* refused_request = nullptr;
  if (const int result = (*pair)->context->operations.post_recv(*pair, &request, &refused_request); result != 0) {
    return refused("no receive is taken by", qpn, result);
  }
  return {};
}

Result<std::string> CardEnd::state(uint32_t qpn) {
  const Result<QueuePair*> pair = pair_of(qpn);
  if (!pair) return pair.error();
  forget_completions();
  PairAttributes attributes{};
  PairRequest made{};
  if (const int result = device_->verbs().query_qp(*pair, &attributes, kSetState, &made); result != 0) {
    return refused("cannot query the state of", qpn, result);
  }
  constexpr std::array<const char*, 7> kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return std::string(attributes.state < kNames.size() ? kNames[attributes.state] : "unknown");
}

void CardEnd::drop(uint32_t qpn) {
  const auto found = pairs_.find(qpn);
  if (found == pairs_.end()) return;
  forget_completions();
  device_->drop_pair(found->second);
  pairs_.erase(found);
}

Result<QueuePair*> CardEnd::pair_of(uint32_t qpn) {
  const auto found = pairs_.find(qpn);
  if (found == pairs_.end()) return Error{"there is no queue pair " + std::to_string(qpn)};
  return found->second;
}

void CardEnd::forget_completions() {
  // Discard completions; a full queue would stop the device.
  std::array<Completion, 64> done;
  CompletionQueue* queue = device_->queue();
  while ((*pairs_.begin()->second).context->operations.poll_cq(queue, static_cast<int>(done.size()), done.data()) > 0) {
  }
}

}  // namespace etloop::verbs
