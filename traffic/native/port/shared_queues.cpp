#include "port/shared_queues.h"

#include <linux/if_ether.h>

#include "plan/queue_deal.h"

namespace etloop {
namespace {

constexpr uint32_t kQpnWord = 4;  // of a BTH: eight reserved bits and the number
constexpr uint32_t kUdpHeaderBytes = 8;

// With the word of the number in the accumulator: what `dealt_queue` says.
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
