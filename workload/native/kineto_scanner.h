// Chrome trace events of a profiler, looked at one by one without making values of what nobody asks for.
//
// The scanner takes elements of a JSON array from a text as long as each is whole and plain: strict JSON, no deeper than
// kMostDepth, every field of the type that profilers write. At the first that is not it stops, and whoever reads hands that
// one to a parser that says what is wrong with it, or that it is unusual and right. So nothing is decided here but what is
// certain, and a fault has the words of one parser.
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
inline constexpr size_t kMostNames = 1 << 18;  // different ones that are known; others are for a parser

// What a plain event is to the reader.
enum class EventKind : uint8_t {
  counted,  // of a category that nobody asks for, or no complete event
  launch,   // of a kernel, by the host
  device,   // a kernel, copy or fill that tells nothing of a collective
  call,     // of the host, joined by its record function id
  raw,      // to be read whole: it communicates, or may
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
  size_t begin;         // characters of the text before it, and before its end
  size_t end;
  int64_t index;        // element of the array
};

class KinetoScanner {
 public:
  enum class Stop : uint8_t {
    ask,    // the element here is for a parser: not whole in this text, or not plain
    ended,  // the array ended; `at` is behind its bracket
  };
  // Whether calls of this name are to be read whole; asked once a name.
  using Classify = std::function<bool(std::string_view)>;

  explicit KinetoScanner(Classify classify) : classify_(std::move(classify)) {}

  // Takes elements from `at` on, each with the comma behind it, and counts them in `index`. Text beyond ASCII is for a parser.
  Stop scan(std::string_view text, size_t& at, int64_t& index);

  // What has been found since the last call to clear(): events that are neither counted nor launches, in their order.
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
