// A fixed row never moves what is in it and ends every element once; large pages are aligned and empty, however often.
#include "base/fixed_row.h"

#include <cstdint>
#include <cstring>

#include "bare/large_pages.h"
#include "support/check.h"

using namespace etloop;

namespace {

struct alignas(64) Counted {
  explicit Counted(int& living, int number) : living_(living), number_(number) { ++living_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --living_; }
  int number() const { return number_; }

 private:
  int& living_;
  int number_;
};

void elements_stay_where_they_are(size_t elements, std::pmr::memory_resource& memory) {
  int living = 0;
  {
    FixedRow<Counted> row(memory);
    row.reserve(elements);
    for (size_t i = 0; i < elements; ++i) {
      const auto number = static_cast<int>(i);
      CHECK_EQ(row.emplace_back(living, number).number(), number);
    }
    CHECK_EQ(row.size(), elements);
    CHECK_EQ(living, static_cast<int>(elements));
    for (size_t i = 0; i < elements; ++i) {
      CHECK_EQ(row[i].number(), static_cast<int>(i));
      CHECK_EQ(reinterpret_cast<uintptr_t>(&row[i]), reinterpret_cast<uintptr_t>(&row[0]) + i * sizeof(Counted));
    }
    if (elements > 0) CHECK_EQ(reinterpret_cast<uintptr_t>(&row[0]) % alignof(Counted), uintptr_t{0});
  }
  CHECK_EQ(living, 0);
}

void large_pages_are_whole_and_empty(size_t bytes) {
  constexpr uintptr_t kPageBytes = 2 << 20;
  for (int times = 0; times < 3; ++times) {
    auto* const at = static_cast<uint8_t*>(large_pages().allocate(bytes, 64));
    CHECK_EQ(reinterpret_cast<uintptr_t>(at) % kPageBytes, uintptr_t{0});
    CHECK_EQ(at[0], uint8_t{0});
    CHECK_EQ(at[bytes - 1], uint8_t{0});
    std::memset(at, 0xFF, bytes);
    large_pages().deallocate(at, bytes, 64);
  }
}

}  // namespace

int main() {
  for (const size_t elements : {size_t{0}, size_t{1}, size_t{127}, size_t{40'000}}) {
    elements_stay_where_they_are(elements, *std::pmr::new_delete_resource());
    elements_stay_where_they_are(elements, large_pages());
  }
  for (const size_t bytes : {size_t{1} << 20, (size_t{2} << 20) + 1, size_t{6} << 20}) large_pages_are_whole_and_empty(bytes);
  return etloop::test::failures();
}
