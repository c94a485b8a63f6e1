#include "bind/plugin_crash.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string>

namespace etloop::cc {

namespace {

struct Fatal {
  int number;
  const char* words;
};
constexpr std::array<Fatal, 5> kFatal{{{SIGSEGV, "segmentation fault"},
                                       {SIGBUS, "bus error"},
                                       {SIGFPE, "arithmetic exception, such as a division by zero"},
                                       {SIGILL, "illegal instruction"},
                                       {SIGABRT, "abort, such as a failed assert"}}};
constexpr size_t kMostLibraries = 16;
constexpr size_t kMostFrames = 64;

// Read by a signal handler, which must not lock: `end` is set last and cleared first.
struct Library {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: unused entry
  uint32_t uses = 0;
  std::array<char, 64> name{};
};

std::mutex changes;
std::array<Library, kMostLibraries> libraries;
std::array<struct sigaction, kFatal.size()> before;

void write_all(const char* text) {
  for (size_t left = strlen(text); left > 0;) {
    const ssize_t written = write(STDERR_FILENO, text, left);
    if (written <= 0) return;
    text += written;
    left -= static_cast<size_t>(written);
  }
}

const Library* library_of(void* const* frames, int count) {
  for (int i = 0; i < count; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(frames[i]);
    for (const Library& library : libraries) {
      if (address >= library.begin.load() && address < library.end.load()) return &library;
    }
  }
  return nullptr;
}

// Report the plugin, then restore the previous handler, which ends the process: the fault occurs again on return, and an abort is
// raised again.
void on_fatal(int number) {
  const auto fatal = std::find_if(kFatal.begin(), kFatal.end(), [number](const Fatal& one) { return one.number == number; });
  std::array<void*, kMostFrames> frames;
  // backtrace is not async-signal-safe, but the unwinder is loaded already (see take_signals), and the process ends in any case.
  const int count = backtrace(frames.data(), kMostFrames);
  if (const Library* library = library_of(frames.data(), count); library != nullptr) {
    write_all("\nerror: the congestion control \"");
    write_all(library->name.data());
    write_all("\" is a plugin and crashed: ");
    write_all(fatal->words);
    write_all(" (its code, not ETLoop's; etloop_cc.h says what it may rely on, and gdb shows where)\n");
  }
  sigaction(number, &before[static_cast<size_t>(fatal - kFatal.begin())], nullptr);
  if (number == SIGABRT) raise(number);
}

struct Range {
  uintptr_t base;
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// Return the address range of a library's code.
Range code_of(const void* inside) {
  Dl_info found{};
  if (dladdr(inside, &found) == 0) return {0};
  Range range{reinterpret_cast<uintptr_t>(found.dli_fbase)};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        auto& into = *static_cast<Range*>(context);
        if (info->dlpi_addr != into.base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          into.begin = into.base + part.p_vaddr;
          into.end = into.begin + part.p_memsz;
        }
        return 1;
      },
      &range);
  return range;
}

Library* watched(uintptr_t begin) {
  const auto found = std::find_if(libraries.begin(), libraries.end(), [begin](const Library& one) {
    return one.end.load() != 0 && one.begin.load() == begin;
  });
  return found == libraries.end() ? nullptr : &*found;
}

void take_signals() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder, which allocates
  struct sigaction action{};
  action.sa_handler = on_fatal;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kFatal.size(); ++i) {
    struct sigaction present{};
    sigaction(kFatal[i].number, nullptr, &present);
    if (present.sa_handler == on_fatal) continue;
    before[i] = present;
    sigaction(kFatal[i].number, &action, nullptr);
  }
}

}  // namespace

void watch_crashes(const void* inside, std::string_view name) {
  const Range range = code_of(inside);
  const std::lock_guard<std::mutex> held(changes);
  if (range.end == 0) return;
  if (Library* known = watched(range.begin); known != nullptr) {
    ++known->uses;
    return;
  }
  const auto free = std::find_if(libraries.begin(), libraries.end(), [](const Library& one) { return one.end.load() == 0; });
  if (free == libraries.end()) return;
  free->uses = 1;
  const size_t length = std::min(name.size(), free->name.size() - 1);
  std::copy_n(name.begin(), length, free->name.begin());
  free->name[length] = '\0';
  free->begin = range.begin;
  free->end = range.end;
  take_signals();
}

void unwatch_crashes(const void* inside) {
  const Range range = code_of(inside);
  const std::lock_guard<std::mutex> held(changes);
  Library* known = watched(range.begin);
  if (known != nullptr && --known->uses == 0) known->end = 0;
}

}  // namespace etloop::cc
