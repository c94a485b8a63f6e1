// A result holds its value or why there is none, and hands either on.
#include "base/result.h"

#include <memory>
#include <string>

#include "support/check.h"

using namespace etloop;

namespace {

struct Port {
  virtual ~Port() = default;
  virtual int number() const { return 1; }
};
struct SpecialPort final : Port {
  int number() const override { return 2; }
};

Result<int> halved(int number) {
  if (number % 2 != 0) return Error{std::to_string(number) + " is odd; give an even number"};
  return number / 2;
}

Result<int> quartered(int number) {
  const Result<int> half = halved(number);
  if (!half) return half.error();
  return halved(*half);
}

Result<void> check_sign(int number) {
  if (number < 0) return Error{"negative"};
  return {};
}

Result<std::unique_ptr<Port>> opened(bool works) {
  Result<std::unique_ptr<SpecialPort>> made = Error{"no such port"};
  if (works) made = std::make_unique<SpecialPort>();
  return made;
}

void a_value_comes_out() {
  const Result<int> result = quartered(12);
  CHECK(static_cast<bool>(result));
  CHECK_EQ(*result, 3);
}

void a_failure_is_handed_on() {
  CHECK_EQ(quartered(7).error().text, std::string("7 is odd; give an even number"));
  CHECK_EQ(quartered(6).error().text, std::string("3 is odd; give an even number"));
}

void nothing_is_a_value_too() {
  CHECK(static_cast<bool>(check_sign(1)));
  const Result<void> refused = check_sign(-1);
  CHECK(!refused);
  CHECK_EQ(refused.error().text, std::string("negative"));
}

void what_cannot_be_copied_is_moved_out() {
  auto port = opened(true);
  CHECK_EQ((*port)->number(), 2);
  const std::unique_ptr<Port> taken = *std::move(port);
  CHECK_EQ(taken->number(), 2);
  CHECK_EQ(opened(false).error().text, std::string("no such port"));
}

void a_text_is_no_failure() {
  const Result<std::string> text = std::string("fine");
  CHECK(static_cast<bool>(text));
  CHECK_EQ(text->size(), size_t{4});
}

}  // namespace

int main() {
  a_value_comes_out();
  a_failure_is_handed_on();
  nothing_is_a_value_too();
  what_cannot_be_copied_is_moved_out();
  a_text_is_no_failure();
  return test::failures();
}
