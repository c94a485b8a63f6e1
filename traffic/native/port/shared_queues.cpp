#include "port/shared_queues.h"

#include <linux/if_ether.h>
#include <sys/socket.h>

#include <cerrno>
#include <iterator>

#include "plan/queue_deal.h"

namespace etloop {
namespace {

constexpr uint32_t kUdpHeaderBytes = 8;

// Append the code of `dealt_queue`; the accumulator has the QPN word.
void append_dealing(std::vector<sock_filter>& code, uint32_t queues, uint32_t first_qpn) {
  code.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xFFFFFF));
  code.push_back(BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, first_qpn));
  if (shifts_rounds(queues)) {
    code.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
    code.push_back(BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, queues));
    code.push_back(BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0));
  }
  code.push_back(BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, queues));
  code.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
}

}  // namespace

std::vector<sock_filter> steering_of_datagrams(uint32_t queues, uint32_t first_qpn) {
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kQpnWord)};
  append_dealing(code, queues, first_qpn);
  return code;
}

Sharing sharing_of(const PortConfig& config) {
  if (config.shared == nullptr) return Sharing::alone;
  return config.queue == 0 ? Sharing::first : Sharing::joins;
}

Result<void> steer_datagrams(int fd, const PortConfig& config) {
  // The sockets form a group from the second one on, in binding order.
  if (config.shared == nullptr || config.queue != 1) return {};
  std::vector<sock_filter> code = steering_of_datagrams(config.shared->queues, config.shared->first_qpn);
  const sock_fprog program{static_cast<uint16_t>(code.size()), code.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0) return {};
  return Error{"the kernel does not sort datagrams between sockets (SO_ATTACH_REUSEPORT_CBPF): " + errno_text(errno) +
               "; write queues: 1"};
}

std::vector<sock_filter> steering_of_frames(uint32_t queues, uint32_t first_qpn) {
  constexpr auto kNetwork = static_cast<uint32_t>(SKF_NET_OFF);
  std::vector<sock_filter> code{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_PROTOCOL)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNetwork + 20 + kUdpHeaderBytes + kQpnWord),
      BPF_STMT(BPF_JMP | BPF_JA, 3),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNetwork + 40 + kUdpHeaderBytes + kQpnWord),
  };
  append_dealing(code, queues, first_qpn);
  return code;
}

}  // namespace etloop
