// The log of records: blocks are read in pieces, given back once read and used again; one thread writes while another reads.
#include "core/record_log.h"

#include <atomic>
#include <thread>

#include "support/check.h"

using namespace etloop;

namespace {

OpRecord numbered(int32_t op) {
  OpRecord record{};
  record.op = op;
  return record;
}

void pieces_end_with_their_block() {
  RecordLog log;
  log.reserve(RecordLog::kBlockRecords + 10);
  for (int32_t i = 0; i < static_cast<int32_t>(RecordLog::kBlockRecords) + 3; ++i) log.push_back(numbered(i));
  CHECK_EQ(log.piece(0, log.size()).size(), RecordLog::kBlockRecords);
  CHECK_EQ(log.piece(5, 9).size(), 4u);
  const auto rest = log.piece(RecordLog::kBlockRecords, log.size());
  CHECK_EQ(rest.size(), 3u);
  CHECK_EQ(rest[0].op, static_cast<int32_t>(RecordLog::kBlockRecords));
  CHECK_EQ(log.piece(log.size(), log.size()).size(), 0u);
}

void a_block_is_given_back_when_all_of_it_was_read() {
  RecordLog log;
  log.reserve(3 * RecordLog::kBlockRecords);
  for (size_t i = 0; i < 2 * RecordLog::kBlockRecords; ++i) log.push_back(numbered(1));
  const OpRecord* first = log.piece(0, 1).data();
  log.release(RecordLog::kBlockRecords - 1);
  CHECK_EQ(log.released(), 0u);
  log.release(RecordLog::kBlockRecords + 7);
  CHECK_EQ(log.released(), RecordLog::kBlockRecords);
  log.push_back(numbered(2));
  // Used again, instead of one more that nobody has touched.
  CHECK(log.piece(2 * RecordLog::kBlockRecords, log.size()).data() == first);
}

void a_short_log_is_one_small_block() {
  RecordLog log;
  log.reserve(2);
  log.push_back(numbered(4));
  log.push_back(numbered(5));
  CHECK_EQ(log[1].op, 5);
  CHECK_EQ(log.piece(0, 2).size(), 2u);
}

void one_writes_while_another_reads_and_lets_go() {
  constexpr int32_t kRecords = 40 * static_cast<int32_t>(RecordLog::kBlockRecords) + 17;
  RecordLog log;
  log.reserve(static_cast<size_t>(kRecords));
  std::atomic<size_t> published{0}, read{0};
  std::thread writer([&] {
    for (int32_t i = 0; i < kRecords; ++i) {
      log.push_back(numbered(i));
      if (i % 100 != 0 && i + 1 != kRecords) continue;
      log.release(read.load(std::memory_order_acquire));
      published.store(log.size(), std::memory_order_release);
    }
  });
  int32_t wanted = 0, wrong = 0;
  while (wanted < kRecords) {
    const auto piece = log.piece(static_cast<size_t>(wanted), published.load(std::memory_order_acquire));
    for (const OpRecord& record : piece) wrong += record.op == wanted++ ? 0 : 1;
    read.store(static_cast<size_t>(wanted), std::memory_order_release);
  }
  writer.join();
  CHECK_EQ(wrong, 0);
}

}  // namespace

int main() {
  pieces_end_with_their_block();
  a_block_is_given_back_when_all_of_it_was_read();
  a_short_log_is_one_small_block();
  one_writes_while_another_reads_and_lets_go();
  return test::failures();
}
