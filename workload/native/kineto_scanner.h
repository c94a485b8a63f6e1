// Scans Chrome trace events of a profiler without building values for events that are not needed.
//
// The scanner accepts elements of a JSON array as long as each is complete and plain: strict JSON, no deeper than kMostDepth,
// every field of the type that profilers write. It stops at the first other element, which the caller passes to a full parser
// that reports its error, or accepts it as unusual but valid. So the scanner decides only certain cases, and all error texts come
// from one parser.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace etloop {

inline constexpr int kMostDepth = 64;
inline constexpr size_t kMostNames = 1 << 18;  // number of distinct names; further ones go to the parser

// The reader's classification of a plain event.
enum class EventKind : uint8_t {
  counted,  // of an unused category, or not a complete event
  launch,   // kernel launch on the host
  device,   // a kernel, copy or fill without collective arguments
  call,     // host call, joined by its record function id
  raw,      // to be read completely: it communicates, or may
};

struct ScannedEvent {
  EventKind kind;
  uint32_t name;       // index into names()
  int64_t start_ns;
  int64_t duration_ns;
  int64_t stream;
  int64_t external;     // -1: none
  int64_t correlation;  // -1: none
  int64_t record;       // 0: none
  size_t begin;         // its offset in the text, and its end
  size_t end;
  int64_t index;        // element of the array
};

class KinetoScanner {
 public:
  enum class Stop : uint8_t {
    ask,    // the element at `at` needs the parser: incomplete in this text, or not plain
    ended,  // the array ended; `at` is after its bracket
  };
  // Whether calls of this name are to be read completely; called once per name.
  using Classify = std::function<bool(std::string_view)>;

  explicit KinetoScanner(Classify classify) : classify_(std::move(classify)) {}

  // Scan elements from `at` on, each with its trailing comma, and count them in `index`. Non-ASCII text needs the parser.
  Stop scan(std::string_view text, size_t& at, int64_t& index);

  // The events since the last clear(), except counted ones and launches, in order.
  const std::vector<ScannedEvent>& events() const { return events_; }
  const std::vector<int64_t>& launches() const { return launches_; }
  const std::unordered_map<std::string, int64_t>& counts() const { return counts_; }
  const std::string& name(uint32_t number) const { return *names_[number]; }
  void clear();

 private:
  struct Fields;
  bool element(std::string_view text, size_t& at, Fields& fields) const;
  bool keep(const Fields& fields, size_t begin, size_t end, int64_t index);
  bool numbered(std::string_view name, uint32_t& number);

  Classify classify_;
  std::vector<ScannedEvent> events_;
  std::vector<int64_t> launches_;
  std::unordered_map<std::string, int64_t> counts_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<const std::string*> names_;
  std::vector<bool> is_raw_;
};

}  // namespace etloop
