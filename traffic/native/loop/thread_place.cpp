#include "loop/thread_place.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "port/udp_socket.h"

namespace etloop {

namespace {

constexpr int kFirstOfOrdinary = -20;  // nice

// Return why a real-time thread that never sleeps would be killed (RLIMIT_RTTIME); empty: it would not be.
std::string time_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_RTTIME, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "its thread is not real-time: the process would be ended after " + std::to_string(limit.rlim_cur) +
         " us of that without a sleep (RLIMIT_RTTIME); lift it (systemd: LimitRTTIME=infinity)";
}

}  // namespace

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
  if (place.realtime_priority <= 0) return refused;
  if (const std::string limited = time_limit(); !limited.empty()) {
    refused.push_back(limited);
  } else {
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

void be_first_of_ordinary() {
  // Without CAP_SYS_NICE or a sufficient limit, it has normal priority during that share of the time.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kFirstOfOrdinary);
}

void become_ordinary() {
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_OTHER, &none);
}

void become_realtime(int32_t priority) {
  const sched_param wanted{priority};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted);
}

}  // namespace etloop
