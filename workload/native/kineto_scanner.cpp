#include "kineto_scanner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace etloop {

namespace {

constexpr int64_t kMostMicroseconds = INT64_MAX / 1000;
constexpr int64_t kNone = -1;

// Arguments that identify a collective: an event with one is read completely.
constexpr std::array<std::string_view, 12> kIdentifying{
    "Collective name", "In msg nelems",      "Out msg nelems",      "In split size", "Out split size", "Group size",
    "dtype",           "Process Group Name", "Process Group Ranks", "Src Rank",      "Dst Rank",       "Rank"};

enum class Category : uint8_t { other, launch, device, host };

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool same_word(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
  });
}

Category category_of(std::string_view text) {
  for (const std::string_view word : {"kernel", "gpu_memcpy", "gpu_memset"}) {
    if (same_word(text, word)) return Category::device;
  }
  for (const std::string_view word : {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"}) {
    if (same_word(text, word)) return Category::launch;
  }
  for (const std::string_view word : {"cpu_op", "user_annotation"}) {
    if (same_word(text, word)) return Category::host;
  }
  return Category::other;
}

// A reader of strict JSON that advances `at` and validates. It builds only the requested values.
class Reader {
 public:
  Reader(std::string_view text, size_t at) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  bool has(char wanted) {
    space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  char next() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  // Read a string; names and keys have no escapes: `plain` is whether it has none.
  bool string(std::string_view& found, bool& plain) {
    if (!has('"')) return false;
    const size_t begin = at_;
    plain = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        found = text_.substr(begin, at_ - begin);
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) >= 0x80) return false;
      ++at_;
      if (c != '\\') continue;
      plain = false;
      if (!escape()) return false;
    }
    return false;
  }

  bool value(int depth) {
    if (depth > kMostDepth) return false;
    switch (next()) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': {
        std::string_view found;
        bool plain = false;
        return string(found, plain);
      }
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: {
        std::string_view found;
        bool whole = false;
        return number(found, whole);
      }
    }
  }

  // Read a number, and whether it is an integer. One at the end of the text may be incomplete.
  bool number(std::string_view& found, bool& whole) {
    space();
    const size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    if (at_ >= text_.size() || !is_digit(text_[at_])) return false;
    if (text_[at_] == '0') {
      ++at_;
    } else {
      digits();
    }
    whole = true;
    if (at_ < text_.size() && text_[at_] == '.') {
      whole = false;
      ++at_;
      if (!digits()) return false;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      whole = false;
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (!digits()) return false;
    }
    found = text_.substr(begin, at_ - begin);
    return at_ < text_.size();
  }

 private:
  void space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin;
  }
  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  bool escape() {
    if (at_ >= text_.size()) return false;
    const char c = text_[at_++];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ >= text_.size()) return false;
      const char h = text_[at_];
      if (!is_digit(h) && !(h >= 'a' && h <= 'f') && !(h >= 'A' && h <= 'F')) return false;
    }
    return true;
  }
  bool object(int depth) {
    if (!has('{')) return false;
    if (has('}')) return true;
    while (true) {
      std::string_view key;
      bool plain = false;
      if (!string(key, plain) || !has(':') || !value(depth + 1)) return false;
      if (has('}')) return true;
      if (!has(',')) return false;
    }
  }
  bool array(int depth) {
    if (!has('[')) return false;
    if (has(']')) return true;
    while (true) {
      if (!value(depth + 1)) return false;
      if (has(']')) return true;
      if (!has(',')) return false;
    }
  }

  std::string_view text_;
  size_t at_;
};

// A raw field: the kind of its value, and the text of a string or number.
struct Value {
  enum class Kind : uint8_t { absent, string, escaped, integer, decimal, other } kind = Kind::absent;
  std::string_view text;
};

bool read_value(Reader& reader, Value& found, int depth) {
  const char first = reader.next();
  if (first == '"') {
    bool plain = false;
    if (!reader.string(found.text, plain)) return false;
    found.kind = plain ? Value::Kind::string : Value::Kind::escaped;
    return true;
  }
  if (first == '-' || is_digit(first)) {
    bool whole = false;
    if (!reader.number(found.text, whole)) return false;
    found.kind = whole ? Value::Kind::integer : Value::Kind::decimal;
    return true;
  }
  found.kind = Value::Kind::other;
  return reader.value(depth);
}

std::optional<int64_t> integer(const Value& value) {
  if (value.kind != Value::Kind::integer) return std::nullopt;
  int64_t number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stopped, error] = std::from_chars(value.text.data(), end, number);
  if (error != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

// Convert microseconds to nanoseconds; nullopt if negative, too large or not a number.
std::optional<int64_t> nanoseconds(const Value& value) {
  if (value.kind == Value::Kind::integer) {
    const std::optional<int64_t> number = integer(value);
    if (!number || *number < 0 || *number >= kMostMicroseconds) return std::nullopt;
    return *number * 1000;
  }
  if (value.kind != Value::Kind::decimal) return std::nullopt;
  double number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stopped, error] = std::from_chars(value.text.data(), end, number);
  if (error != std::errc{} || stopped != end || !(number >= 0) || number >= static_cast<double>(kMostMicroseconds)) {
    return std::nullopt;
  }
  // Round half to even, like Python.
  return static_cast<int64_t>(std::nearbyint(number * 1000.0));
}

}  // namespace

struct KinetoScanner::Fields {
  Value category, phase, name, start, duration, thread, stream, external, external_lower, correlation, record;
  bool identifies = false;  // it has an argument that identifies a collective
  bool odd = false;         // its arguments are not an object
};

namespace {

bool read_arguments(Reader& reader, auto& fields) {
  if (reader.next() != '{') {
    fields.odd = true;
    return reader.value(1);
  }
  // A second `args` replaces the first.
  fields.stream = fields.external = fields.external_lower = fields.correlation = fields.record = {};
  fields.identifies = false;
  reader.has('{');
  if (reader.has('}')) return true;
  while (true) {
    std::string_view key;
    bool plain = false;
    if (!reader.string(key, plain) || !plain || !reader.has(':')) return false;
    Value* wanted = nullptr;
    if (key == "stream") wanted = &fields.stream;
    if (key == "External id") wanted = &fields.external;
    if (key == "external id") wanted = &fields.external_lower;
    if (key == "correlation") wanted = &fields.correlation;
    if (key == "Record function id") wanted = &fields.record;
    if (wanted != nullptr ? !read_value(reader, *wanted, 2) : !reader.value(2)) return false;
    fields.identifies = fields.identifies || std::find(kIdentifying.begin(), kIdentifying.end(), key) != kIdentifying.end();
    if (reader.has('}')) return true;
    if (!reader.has(',')) return false;
  }
}

}  // namespace

bool KinetoScanner::element(std::string_view text, size_t& at, Fields& fields) const {
  Reader reader(text, at);
  if (!reader.has('{')) return false;
  bool ended = reader.has('}');
  while (!ended) {
    std::string_view key;
    bool plain = false;
    if (!reader.string(key, plain) || !plain || !reader.has(':')) return false;
    Value* wanted = nullptr;
    if (key == "cat") wanted = &fields.category;
    if (key == "ph") wanted = &fields.phase;
    if (key == "name") wanted = &fields.name;
    if (key == "ts") wanted = &fields.start;
    if (key == "dur") wanted = &fields.duration;
    if (key == "tid") wanted = &fields.thread;
    if (wanted != nullptr) {
      if (!read_value(reader, *wanted, 1)) return false;
    } else if (key == "args") {
      if (!read_arguments(reader, fields)) return false;
    } else if (!reader.value(1)) {
      return false;
    }
    ended = reader.has('}');
    if (!ended && !reader.has(',')) return false;
  }
  at = reader.at();
  return true;
}

bool KinetoScanner::numbered(std::string_view name, uint32_t& number) {
  const auto known = numbers_.find(std::string(name));
  if (known != numbers_.end()) {
    number = known->second;
    return true;
  }
  if (names_.size() >= kMostNames) return false;
  number = static_cast<uint32_t>(names_.size());
  names_.push_back(&numbers_.try_emplace(std::string(name), number).first->first);
  is_raw_.push_back(classify_(name));
  return true;
}

// False: the event needs the parser.
bool KinetoScanner::keep(const Fields& fields, size_t begin, size_t end, int64_t index) {
  using Kind = Value::Kind;
  if (fields.odd || fields.category.kind == Kind::escaped || fields.phase.kind == Kind::escaped) return false;
  const bool has_category = fields.category.kind == Kind::string;
  const bool is_whole = fields.phase.kind == Kind::string && fields.phase.text == "X";
  const Category category = has_category && is_whole ? category_of(fields.category.text) : Category::other;
  ScannedEvent event{EventKind::counted, 0, 0, 0, 0, kNone, kNone, 0, begin, end, index};
  const auto counted = [&] { ++counts_[has_category ? std::string(fields.category.text) : "None"]; };
  if (category == Category::other) {
    counted();
    return true;
  }
  if (category == Category::launch) {
    if (fields.correlation.kind == Kind::integer) {
      const std::optional<int64_t> correlation = integer(fields.correlation);
      if (!correlation) return false;
      if (*correlation >= 0) launches_.push_back(*correlation);
    }
    counted();
    return true;
  }
  if (fields.name.kind != Kind::string || !numbered(fields.name.text, event.name)) return false;
  const auto optional_integer = [](const Value& value, int64_t& found) {
    if (value.kind != Kind::integer) return true;
    const std::optional<int64_t> number = integer(value);
    found = number.value_or(kNone);
    return number && *number >= 0;
  };
  if (category == Category::host) {
    event.kind = is_raw_[event.name] ? EventKind::raw : EventKind::call;
    if (fields.record.kind == Kind::integer) {
      const std::optional<int64_t> record = integer(fields.record);
      if (!record) return false;
      event.record = *record;
    }
    if (!optional_integer(fields.external, event.external)) return false;
    if (event.kind == EventKind::call && event.record == 0) {
      counted();
      return true;
    }
  } else {
    event.kind = fields.identifies ? EventKind::raw : EventKind::device;
    const std::optional<int64_t> stream = integer(fields.stream.kind == Kind::absent ? fields.thread : fields.stream);
    const Value& external = fields.external.kind == Kind::absent ? fields.external_lower : fields.external;
    if (!stream || *stream < 0 || !optional_integer(external, event.external)) return false;
    if (!optional_integer(fields.correlation, event.correlation)) return false;
    event.stream = *stream;
  }
  const std::optional<int64_t> start = nanoseconds(fields.start);
  Value duration = fields.duration;
  if (duration.kind == Kind::absent) duration = {Kind::integer, "0"};
  const std::optional<int64_t> lasted = nanoseconds(duration);
  // Communication events may lack times.
  if ((!start || !lasted) && event.kind != EventKind::raw) return false;
  event.start_ns = start.value_or(0);
  event.duration_ns = lasted.value_or(0);
  if (event.kind != EventKind::raw) counted();
  events_.push_back(event);
  return true;
}

KinetoScanner::Stop KinetoScanner::scan(std::string_view text, size_t& at, int64_t& index) {
  while (true) {
    Fields fields{};
    size_t end = at;
    if (!element(text, end, fields)) return Stop::ask;
    Reader behind(text, end);
    const char mark = behind.next();
    if (mark != ',' && mark != ']') return Stop::ask;
    if (!keep(fields, at, end, index)) return Stop::ask;
    ++index;
    behind.has(mark);
    at = behind.at();
    if (mark == ']') return Stop::ended;
  }
}

void KinetoScanner::clear() {
  events_.clear();
  launches_.clear();
  counts_.clear();
}

}  // namespace etloop
