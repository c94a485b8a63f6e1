#include "port/xdp/xdp_program.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#ifndef BPF_F_XDP_HAS_FRAGS
#define BPF_F_XDP_HAS_FRAGS (1U << 5)
#endif

namespace etloop {
namespace {

int bpf(bpf_cmd command, bpf_attr& attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

bpf_insn load(uint8_t size, uint8_t to, uint8_t from, int16_t offset) {
  return {static_cast<uint8_t>(BPF_LDX | size | BPF_MEM), to, from, offset, 0};
}
bpf_insn move(uint8_t to, uint8_t from) { return {BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0}; }
bpf_insn set(uint8_t to, int32_t value) { return {BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value}; }
bpf_insn add(uint8_t to, int32_t value) { return {BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value}; }

// An assembler with forward jumps to labels.
class Assembler {
 public:
  enum Label : size_t { pass, untagged, ipv6, port, redirect, kLabels };

  void emit(bpf_insn instruction) { code_.push_back(instruction); }
  void jump_if(uint8_t operation, uint8_t reg, int32_t value, Label target) {
    jumps_.push_back({code_.size(), target});
    code_.push_back({static_cast<uint8_t>(BPF_JMP | operation | BPF_K), reg, 0, 0, value});
  }
  void jump_if_beyond(uint8_t reg, uint8_t end, Label target) {
    jumps_.push_back({code_.size(), target});
    code_.push_back({BPF_JMP | BPF_JGT | BPF_X, reg, end, 0, 0});
  }
  void jump(Label target) {
    jumps_.push_back({code_.size(), target});
    code_.push_back({BPF_JMP | BPF_JA, 0, 0, 0, 0});
  }
  void mark(Label label) { marks_[label] = code_.size(); }
  std::vector<bpf_insn> finish() {
    for (const auto& [at, target] : jumps_) code_[at].off = static_cast<int16_t>(marks_[target] - at - 1);
    return std::move(code_);
  }

 private:
  struct Jump {
    size_t at;
    Label target;
  };
  std::vector<bpf_insn> code_;
  std::vector<Jump> jumps_;
  std::array<size_t, kLabels> marks_{};
};

// Registers: r6 context, r2 begin and r3 end of the frame's first buffer, r5 the current field.
std::vector<bpf_insn> assemble(int map, uint16_t udp_port) {
  constexpr int32_t kTag = 4;
  constexpr int32_t kEthernetIpv4Udp = 14 + 20 + 8;
  constexpr int32_t kEthernetIpv6Udp = 14 + 40 + 8;
  Assembler a;
  a.emit(move(6, 1));
  a.emit(load(BPF_W, 2, 1, offsetof(xdp_md, data)));
  a.emit(load(BPF_W, 3, 1, offsetof(xdp_md, data_end)));
  a.emit(move(4, 2));
  a.emit(add(4, kEthernetIpv4Udp));
  a.jump_if_beyond(4, 3, Assembler::pass);
  a.emit(load(BPF_H, 5, 2, 12));
  // A tag left in the frame by the driver shifts the following offsets.
  a.jump_if(BPF_JNE, 5, htons(ETH_P_8021Q), Assembler::untagged);
  a.emit(move(4, 2));
  a.emit(add(4, kTag + kEthernetIpv4Udp));
  a.jump_if_beyond(4, 3, Assembler::pass);
  a.emit(add(2, kTag));
  a.emit(load(BPF_H, 5, 2, 12));
  a.mark(Assembler::untagged);
  a.jump_if(BPF_JEQ, 5, htons(ETH_P_PAUSE), Assembler::redirect);
  a.jump_if(BPF_JEQ, 5, htons(ETH_P_IPV6), Assembler::ipv6);
  a.jump_if(BPF_JNE, 5, htons(ETH_P_IP), Assembler::pass);
  a.emit(load(BPF_B, 5, 2, 14));
  a.jump_if(BPF_JNE, 5, 0x45, Assembler::pass);
  a.emit(load(BPF_B, 5, 2, 23));
  a.jump_if(BPF_JNE, 5, IPPROTO_UDP, Assembler::pass);
  a.emit(load(BPF_H, 5, 2, 36));
  a.jump(Assembler::port);
  a.mark(Assembler::ipv6);
  a.emit(move(4, 2));
  a.emit(add(4, kEthernetIpv6Udp));
  a.jump_if_beyond(4, 3, Assembler::pass);
  a.emit(load(BPF_B, 5, 2, 20));
  a.jump_if(BPF_JNE, 5, IPPROTO_UDP, Assembler::pass);
  a.emit(load(BPF_H, 5, 2, 56));
  a.mark(Assembler::port);
  a.jump_if(BPF_JNE, 5, htons(udp_port), Assembler::pass);
  a.mark(Assembler::redirect);
  a.emit(load(BPF_W, 2, 6, offsetof(xdp_md, rx_queue_index)));
  a.emit({BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map});
  a.emit({});
  a.emit(set(3, XDP_PASS));  // if a queue has no socket
  a.emit({BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map});
  a.emit({BPF_JMP | BPF_EXIT, 0, 0, 0, 0});
  a.mark(Assembler::pass);
  a.emit(set(0, XDP_PASS));
  a.emit({BPF_JMP | BPF_EXIT, 0, 0, 0, 0});
  return a.finish();
}

}  // namespace

Result<void> XdpProgram::attach(int interface_index, const std::string& interface, uint16_t udp_port, uint32_t queues) {
  bpf_attr map{};
  map.map_type = BPF_MAP_TYPE_XSKMAP;
  map.key_size = map.value_size = sizeof(uint32_t);
  map.max_entries = queues;
  map_ = Descriptor(bpf(BPF_MAP_CREATE, map));
  if (map_.get() < 0) {
    return Error{"cannot make a map of AF_XDP sockets: " + errno_text(errno) +
                 (errno == EPERM ? "; give the agent CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, or write backend: packet"
                                 : "; this kernel has no AF_XDP (CONFIG_XDP_SOCKETS), write backend: packet")};
  }
  const std::vector<bpf_insn> code = assemble(map_.get(), udp_port);
  std::array<char, 4096> log{};
  bpf_attr program{};
  program.prog_type = BPF_PROG_TYPE_XDP;
  program.insns = reinterpret_cast<uint64_t>(code.data());
  program.insn_cnt = static_cast<uint32_t>(code.size());
  program.license = reinterpret_cast<uint64_t>("Apache-2.0");
  program.log_buf = reinterpret_cast<uint64_t>(log.data());
  program.log_size = log.size();
  program.log_level = 1;
  program.prog_flags = BPF_F_XDP_HAS_FRAGS;
  program_ = Descriptor(bpf(BPF_PROG_LOAD, program));
  if (program_.get() < 0) {
    return Error{"the kernel refuses the XDP program: " + errno_text(errno) + " (" + std::string(log.data()).substr(0, 200) +
                 "); frames of 4 KiB need Linux 6.6, write backend: packet"};
  }
  for (const uint32_t mode : {XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE}) {
    bpf_attr link{};
    link.link_create.prog_fd = static_cast<uint32_t>(program_.get());
    link.link_create.target_ifindex = static_cast<uint32_t>(interface_index);
    link.link_create.attach_type = BPF_XDP;
    link.link_create.flags = mode;
    link_ = Descriptor(bpf(BPF_LINK_CREATE, link));
    in_driver_ = mode == XDP_FLAGS_DRV_MODE;
    if (link_.get() >= 0) return {};
  }
  return Error{"cannot attach an XDP program to " + interface + ": " + errno_text(errno) +
               (errno == EBUSY ? "; another one is there (ip link set " + interface + " xdp off)" : "; write backend: packet")};
}

Result<void> XdpProgram::give(uint32_t queue, int socket) {
  const auto value = static_cast<uint32_t>(socket);
  bpf_attr element{};
  element.map_fd = static_cast<uint32_t>(map_.get());
  element.key = reinterpret_cast<uint64_t>(&queue);
  element.value = reinterpret_cast<uint64_t>(&value);
  if (bpf(BPF_MAP_UPDATE_ELEM, element) == 0) return {};
  return Error{"cannot give queue " + std::to_string(queue) + " to an AF_XDP socket: " + errno_text(errno)};
}

}  // namespace etloop
