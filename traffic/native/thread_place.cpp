#include "thread_place.h"

#include <sched.h>

#include <cerrno>
#include <ctime>

#include "system_clock.h"
#include "udp_socket.h"

namespace etloop {

std::vector<std::string> place_thread(pthread_t thread, const ThreadPlace& place) {
  std::vector<std::string> refused;
  if (place.processor >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(place.processor), &set);
    if (const int code = pthread_setaffinity_np(thread, sizeof set, &set); code != 0) {
      refused.push_back("its thread is not held on core " + std::to_string(place.processor) + ": " + errno_text(code));
    }
  }
  if (place.realtime_priority > 0) {
    const sched_param wanted{place.realtime_priority};
    if (const int code = pthread_setschedparam(thread, SCHED_FIFO, &wanted); code != 0) {
      refused.push_back("its thread is not real-time: " + errno_text(code) +
                        (code == EPERM ? "; give the agent CAP_SYS_NICE or a real-time limit (systemd: LimitRTPRIO=" +
                                             std::to_string(place.realtime_priority) +
                                             " without RestrictRealtime; cgroups of version 1: cpu.rt_runtime_us)"
                                       : ""));
    }
  }
  return refused;
}

Nanos sleep_for(Nanos length_ns) {
  const timespec length{length_ns / 1'000'000'000, length_ns % 1'000'000'000};
  const Nanos before = monotonic_ns();
  clock_nanosleep(CLOCK_MONOTONIC, 0, &length, nullptr);
  return monotonic_ns() - before;
}

}  // namespace etloop
