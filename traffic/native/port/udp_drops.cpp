#include "port/udp_drops.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace etloop {

namespace {

constexpr size_t kFileBytes = 1 << 14;  // longer than the kernel's files

std::string_view next_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  line.remove_prefix(begin);
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void add(std::string_view name, std::string_view number, UdpErrors& found) {
  int64_t value = 0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  if (name == "RcvbufErrors" || name == "MemErrors") found.no_room += value;
  if (name == "InCsumErrors") found.damaged += value;
  if (name == "InDatagrams") found.delivered += value;
}

// False where the file cannot be read. It is bound to the namespace that it was opened in.
bool whole(const Descriptor& file, std::array<char, kFileBytes>& room, std::string_view& text) {
  size_t bytes = 0;
  while (bytes < room.size()) {
    const ssize_t more = pread(file.get(), room.data() + bytes, room.size() - bytes, static_cast<off_t>(bytes));
    if (more < 0) return false;
    if (more == 0) break;
    bytes += static_cast<size_t>(more);
  }
  text = {room.data(), bytes};
  return true;
}

}  // namespace

UdpErrors read_udp_errors(std::string_view snmp, std::string_view snmp6) {
  UdpErrors found;
  constexpr std::string_view kUdp = "Udp:";
  while (!snmp.empty()) {
    std::string_view names = next_line(snmp);
    if (!names.starts_with(kUdp)) continue;
    std::string_view numbers = next_line(snmp);
    while (!names.empty() && !numbers.empty()) {
      const std::string_view name = next_word(names);
      add(name, next_word(numbers), found);
    }
  }
  constexpr std::string_view kUdp6 = "Udp6";
  while (!snmp6.empty()) {
    std::string_view line = next_line(snmp6);
    const std::string_view name = next_word(line);
    if (name.starts_with(kUdp6)) add(name.substr(kUdp6.size()), next_word(line), found);
  }
  return found;
}

UdpDropReasons::UdpDropReasons()
    : snmp_(open("/proc/thread-self/net/snmp", O_RDONLY | O_CLOEXEC)),
      snmp6_(open("/proc/thread-self/net/snmp6", O_RDONLY | O_CLOEXEC)) {
  told_ = look(before_);
}

bool UdpDropReasons::look(UdpErrors& found) const {
  std::array<char, kFileBytes> room;
  std::array<char, kFileBytes> room6;
  std::string_view snmp;
  std::string_view snmp6;
  if (!whole(snmp_, room, snmp)) return false;
  if (snmp6_.get() >= 0 && !whole(snmp6_, room6, snmp6)) return false;  // a kernel without IPv6 has no such file
  found = read_udp_errors(snmp, snmp6);
  return true;
}

UdpDrops divided(const UdpErrors& meanwhile, int64_t drops, int64_t received) {
  const int64_t no_room = std::min(drops, meanwhile.no_room);
  const bool alone = meanwhile.delivered <= received;
  return {no_room, alone ? meanwhile.damaged : std::min(drops - no_room, meanwhile.damaged)};
}

UdpDrops UdpDropReasons::divide(int64_t drops, int64_t received) const {
  UdpErrors now;
  if (!told_ || !look(now)) return {drops, 0};
  now.no_room -= before_.no_room;
  now.damaged -= before_.damaged;
  now.delivered -= before_.delivered;
  return divided(now, drops, received);
}

}  // namespace etloop
