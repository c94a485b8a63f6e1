// Types of the settings of transport_settings.h, and their bounds.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

namespace etloop {

// The values that a scenario may write for a setting, and the value of one that is left out, which may lie outside.
struct SettingBounds {
  int64_t least;
  int64_t most;
  int64_t left_out;
};

// Numbers from 0 to 63.
struct NumberSet {
  uint64_t bits = 0;

  bool contains(uint32_t number) const { return (bits >> number & 1) != 0; }
};

// A visitor of settings that looks for the first one that is out of its bounds.
class BoundsCheck {
 public:
  explicit BoundsCheck(const std::string& path) : path_(path + ".") {}

  template <typename Value>
  void operator()(const char* name, const Value& value) {
    if constexpr (std::is_class_v<Value> && !std::is_same_v<Value, NumberSet>) {
      BoundsCheck below(path_ + name);
      Value::visit(value, below);
      if (problem_.empty()) problem_ = below.problem_;
    }
  }
  template <typename Value>
  void operator()(const char* name, const Value& value, const SettingBounds& bounds) {
    const auto number = static_cast<int64_t>(value);
    if (!problem_.empty() || number == bounds.left_out || (number >= bounds.least && number <= bounds.most)) return;
    problem_ = path_ + name + ": " + std::to_string(number) + " is not within " + std::to_string(bounds.least) + " and " +
               std::to_string(bounds.most);
  }
  const std::string& problem() const { return problem_; }

 private:
  std::string path_;
  std::string problem_;
};

// Return the first setting that is out of its bounds, such as "transport.recovery.reorder_packets: 300 is not within 1 and 256";
// empty if there is none.
template <typename Settings>
std::string out_of_bounds(const Settings& settings, const std::string& path) {
  BoundsCheck check(path);
  Settings::visit(settings, check);
  return check.problem();
}

}  // namespace etloop
