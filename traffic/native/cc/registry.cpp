#include "cc/registry.h"

#include <algorithm>
#include <cmath>

namespace etloop::cc {

namespace {

#define ETLOOP_ADDRESS_OF(name) &name,
constexpr const etloop_cc_algorithm* kBuiltIn[] = {ETLOOP_BUILT_IN_ALGORITHMS(ETLOOP_ADDRESS_OF)};
#undef ETLOOP_ADDRESS_OF

constexpr uint32_t kMostParameters = 256;
constexpr uint32_t kMostStateBytes = 64 << 10;
constexpr uint32_t kKnownNeeds =
    ETLOOP_CC_NEEDS_CNP | ETLOOP_CC_NEEDS_ECN | ETLOOP_CC_NEEDS_RTT | ETLOOP_CC_NEEDS_INT |
    ETLOOP_CC_NEEDS_CREDITS;

bool is_word(const char* text) {
  if (text == nullptr || *text == '\0') return false;
  const std::string_view word(text, std::char_traits<char>::length(text));
  return word.size() <= 64 && std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

int64_t index_of(const etloop_cc_algorithm& table, std::string_view name) {
  for (uint32_t i = 0; i < table.parameter_count; ++i) {
    if (name == table.parameters[i].name) return i;
  }
  return -1;
}

std::string parameter_refusal(const etloop_cc_parameter& parameter) {
  if (!is_word(parameter.name)) return "a parameter's name is not a word of a-z, 0-9 and _";
  const std::string name = parameter.name;
  if (parameter.unit > ETLOOP_CC_BITS_PER_SECOND) return "parameter " + name + " has an unknown unit";
  // Written so that not-a-number fails.
  if (!(parameter.least <= parameter.initial && parameter.initial <= parameter.most)) {
    return "parameter " + name + ": its initial value is not within its limits";
  }
  if (parameter.meaning == nullptr) return "parameter " + name + " does not say what it means";
  return {};
}

}  // namespace

std::span<const etloop_cc_algorithm* const> built_in() { return kBuiltIn; }

const etloop_cc_algorithm* find_built_in(std::string_view name) {
  for (const etloop_cc_algorithm* table : kBuiltIn) {
    if (name == table->name) return table;
  }
  return nullptr;
}

std::string refusal(const etloop_cc_algorithm* table) {
  if (table == nullptr) return "it returned no table";
  if (table->abi_version != ETLOOP_CC_ABI_VERSION || table->table_bytes != sizeof(etloop_cc_algorithm)) {
    return "it was made for version " + std::to_string(table->abi_version) + " of etloop_cc.h with a table of " +
           std::to_string(table->table_bytes) + " bytes; this is version " + std::to_string(ETLOOP_CC_ABI_VERSION) +
           " with " + std::to_string(sizeof(etloop_cc_algorithm));
  }
  if (!is_word(table->name)) return "its name is not a word of a-z, 0-9 and _";
  if (table->meaning == nullptr) return "it does not say what it is";
  if ((table->needs & ~kKnownNeeds) != 0) return "it needs something unknown";
  if (table->state_bytes > kMostStateBytes) return "its state has more than 65536 bytes";
  if (table->init == nullptr) return "it has no init";
  if ((table->on_timer == nullptr) != (table->next_timer_ns == nullptr)) {
    return "on_timer and next_timer_ns belong together, one is missing";
  }
  if (table->parameter_count > kMostParameters || (table->parameter_count > 0 && table->parameters == nullptr)) {
    return "its parameters are missing or more than 256";
  }
  if (table->profile_count > kMostParameters || (table->profile_count > 0 && table->profiles == nullptr)) {
    return "its profiles are missing or more than 256";
  }
  for (uint32_t i = 0; i < table->parameter_count; ++i) {
    if (std::string wrong = parameter_refusal(table->parameters[i]); !wrong.empty()) return wrong;
    if (index_of(*table, table->parameters[i].name) != i) {
      return std::string("parameter ") + table->parameters[i].name + " stands twice";
    }
  }
  for (uint32_t i = 0; i < table->profile_count; ++i) {
    const etloop_cc_profile& profile = table->profiles[i];
    if (!is_word(profile.name) || profile.meaning == nullptr) return "a profile's name or meaning is missing";
    if (profile.setting_count > 0 && profile.settings == nullptr) return "a profile's settings are missing";
    for (uint32_t s = 0; s < profile.setting_count; ++s) {
      const etloop_cc_setting& setting = profile.settings[s];
      const int64_t at = setting.parameter == nullptr ? -1 : index_of(*table, setting.parameter);
      if (at < 0) return std::string("profile ") + profile.name + " sets a parameter that does not exist";
      const etloop_cc_parameter& parameter = table->parameters[at];
      if (!(parameter.least <= setting.value && setting.value <= parameter.most)) {
        return std::string("profile ") + profile.name + " sets " + parameter.name + " beyond its limits";
      }
    }
  }
  return {};
}

std::vector<double> parameter_values(const etloop_cc_algorithm& table, std::string_view profile,
                                     std::span<const GivenParameter> given, std::vector<std::string>& mistakes) {
  std::vector<double> values(table.parameter_count);
  for (uint32_t i = 0; i < table.parameter_count; ++i) values[i] = table.parameters[i].initial;
  const etloop_cc_profile* chosen = nullptr;
  for (uint32_t i = 0; i < table.profile_count && chosen == nullptr; ++i) {
    if (profile.empty() || profile == table.profiles[i].name) chosen = &table.profiles[i];
  }
  if (chosen == nullptr && !profile.empty()) {
    mistakes.push_back(std::string(table.name) + " has no profile " + std::string(profile));
  }
  for (uint32_t s = 0; chosen != nullptr && s < chosen->setting_count; ++s) {
    values[static_cast<size_t>(index_of(table, chosen->settings[s].parameter))] = chosen->settings[s].value;
  }
  for (const auto& [name, value] : given) {
    const int64_t at = index_of(table, name);
    if (at < 0) {
      mistakes.push_back(std::string(table.name) + " has no parameter " + name);
      continue;
    }
    const etloop_cc_parameter& parameter = table.parameters[at];
    const bool counts = parameter.unit == ETLOOP_CC_COUNT;
    if (!(parameter.least <= value && value <= parameter.most) || (counts && value != std::floor(value))) {
      mistakes.push_back(name + " is out of its limits");
      continue;
    }
    values[static_cast<size_t>(at)] = value;
  }
  if (mistakes.empty() && table.check != nullptr) {
    if (const char* wrong = table.check(values.data()); wrong != nullptr) mistakes.emplace_back(wrong);
  }
  return values;
}

}  // namespace etloop::cc
