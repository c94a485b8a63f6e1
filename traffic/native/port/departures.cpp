#include "port/departures.h"

#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace etloop {
namespace {

constexpr size_t kAnswerBytes = 32768;  // the kernel uses less (Linux net/netlink/af_netlink.c, netlink_dump)
constexpr int kMostAnswers = 1024;
constexpr size_t kMostKindBytes = 16;  // IFNAMSIZ, the kernel's limit

template <typename T>
T read_value(std::span<const uint8_t> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Return the kind attribute of a discipline; "": none.
std::string kind_of(std::span<const uint8_t> attributes) {
  while (attributes.size() >= sizeof(rtattr)) {
    const auto head = read_value<rtattr>(attributes);
    if (head.rta_len < sizeof head || head.rta_len > attributes.size()) return {};
    if (head.rta_type == TCA_KIND) {
      const auto* text = reinterpret_cast<const char*>(attributes.data() + RTA_LENGTH(0));
      const size_t room = head.rta_len - RTA_LENGTH(0);
      return std::string(text, strnlen(text, std::min(room, kMostKindBytes)));
    }
    attributes = attributes.subspan(std::min<size_t>(RTA_ALIGN(head.rta_len), attributes.size()));
  }
  return {};
}

uint32_t major_of(uint32_t handle) { return handle & TC_H_MAJ_MASK; }

// Return the disciplines that queue packets: the root, or those below a root that only spreads packets over hardware queues.
std::vector<std::string> kinds_passed(std::span<const Qdisc> qdiscs, int interface) {
  std::vector<std::string> kinds;
  for (const Qdisc& root : qdiscs) {
    if (root.interface != interface || root.parent != TC_H_ROOT) continue;
    if (root.kind != "mq") return {root.kind};
    for (const Qdisc& child : qdiscs) {
      const bool below = child.interface == interface && child.parent != TC_H_ROOT && child.parent != TC_H_INGRESS;
      if (below && major_of(child.parent) == major_of(root.handle)) kinds.push_back(child.kind);
    }
    return kinds;
  }
  return kinds;
}

}  // namespace

DumpPart read_qdiscs(std::span<const uint8_t> messages, std::vector<Qdisc>& out) {
  while (messages.size() >= sizeof(nlmsghdr)) {
    const auto head = read_value<nlmsghdr>(messages);
    if (head.nlmsg_len < sizeof head || head.nlmsg_len > messages.size()) return DumpPart::broken;
    if (head.nlmsg_type == NLMSG_DONE) return DumpPart::over;
    if (head.nlmsg_type == NLMSG_ERROR) return DumpPart::broken;
    const auto body = messages.subspan(NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
    if (head.nlmsg_type == RTM_NEWQDISC) {
      if (body.size() < sizeof(tcmsg)) return DumpPart::broken;
      const auto header = read_value<tcmsg>(body);
      const auto attributes = body.subspan(NLMSG_ALIGN(sizeof header));
      out.push_back({header.tcm_ifindex, header.tcm_handle, header.tcm_parent, kind_of(attributes)});
    }
    messages = messages.subspan(std::min<size_t>(NLMSG_ALIGN(head.nlmsg_len), messages.size()));
  }
  return messages.empty() ? DumpPart::more : DumpPart::broken;
}

std::string departures_refused(std::span<const Qdisc> qdiscs, const Interface& interface) {
  const std::vector<std::string> kinds = kinds_passed(qdiscs, interface.index);
  const auto other = std::find_if(kinds.begin(), kinds.end(), [](const std::string& kind) { return kind != "fq"; });
  if (!kinds.empty() && other == kinds.end()) return {};
  const std::string remedy = "; tc qdisc replace dev " + interface.name + " root fq";
  if (kinds.empty()) return "the kernel names no queueing discipline of " + interface.name + remedy;
  if (*other == "etf") {
    return "the queueing discipline etf of " + interface.name + " drops what carries no time, such as acknowledgements" + remedy;
  }
  return "the queueing discipline of " + interface.name + " is " + *other + ", not fq" + remedy;
}

std::string departures_refused(const Interface& interface) {
  const Descriptor asked(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr head;
    tcmsg body;
  } request{};
  request.head = {sizeof request, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 1, 0};
  request.body.tcm_family = AF_UNSPEC;
  const std::string unknown = "the kernel does not report the queueing discipline of " + interface.name + " (rtnetlink): ";
  if (asked.get() < 0 || ::send(asked.get(), &request, sizeof request, 0) < 0) return unknown + errno_text(errno);
  std::vector<Qdisc> qdiscs;
  alignas(NLMSG_ALIGNTO) std::array<uint8_t, kAnswerBytes> answer;
  for (int turn = 0; turn < kMostAnswers; ++turn) {
    const ssize_t bytes = recv(asked.get(), answer.data(), answer.size(), 0);
    if (bytes <= 0) return unknown + errno_text(errno);
    switch (read_qdiscs({answer.data(), static_cast<size_t>(bytes)}, qdiscs)) {
      case DumpPart::more: break;
      case DumpPart::over: return departures_refused(qdiscs, interface);
      case DumpPart::broken: return unknown + "its answer is not understood";
    }
  }
  return unknown + "its answer has no end";
}

}  // namespace etloop
