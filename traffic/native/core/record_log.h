// An append-only log of records in blocks that are recycled after they were read: memory holds only unread records. One thread
// appends and releases; another may read up to a published size.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plan/records.h"

namespace etloop {

class RecordLog {
 public:
  static constexpr size_t kBlockRecords = 4096;  // 384 KiB
  // Spare blocks, so that a writer whose reader keeps up never allocates.
  static constexpr size_t kSpares = 8;

  // Set the expected number of records; call before the first.
  void reserve(size_t records) {
    assert(size_ == 0);
    block_records_ = std::clamp(records, size_t{1}, kBlockRecords);
    blocks_.resize((records + block_records_ - 1) / block_records_);
    const size_t spares = std::min(blocks_.size(), kSpares / 2);
    for (size_t i = 0; i < spares; ++i) recycle(std::make_unique_for_overwrite<OpRecord[]>(block_records_));
  }

  // ---- writer

  void push_back(const OpRecord& record) {
    const size_t block = size_ / block_records_;
    if (size_ % block_records_ == 0) {
      if (block == blocks_.size()) blocks_.emplace_back();  // more than reserved: only without a concurrent reader
      blocks_[block] = take_spare();
    }
    blocks_[block][size_ % block_records_] = record;
    ++size_;
  }
  // Release the records before `end`: they were read.
  void release(size_t end) {
    // Recycle full blocks only: the last one is still being written.
    for (const size_t full = end / block_records_; released_ < full; ++released_) recycle(std::move(blocks_[released_]));
  }
  size_t released() const { return released_ * block_records_; }
  size_t size() const { return size_; }
  const OpRecord& operator[](size_t index) const {
    assert(index < size_);
    return blocks_[index / block_records_][index % block_records_];
  }

  // ---- reader; `end` is a size published by the writer

  // Contiguous records from `first`; empty only if `first` == `end`.
  std::span<const OpRecord> piece(size_t first, size_t end) const {
    if (first >= end) return {};
    const size_t within = first % block_records_;
    const size_t count = std::min(end - first, block_records_ - within);
    return {blocks_[first / block_records_].get() + within, count};
  }

 private:
  using Block = std::unique_ptr<OpRecord[]>;

  void recycle(Block block) {
    if (spare_count_ < kSpares) spares_[spare_count_++] = std::move(block);
  }
  Block take_spare() {
    if (spare_count_ > 0) return std::move(spares_[--spare_count_]);
    // The reader holds all spare blocks: allocate rather than lose records.
    return std::make_unique_for_overwrite<OpRecord[]>(block_records_);
  }

  std::vector<Block> blocks_;
  size_t block_records_ = kBlockRecords;
  size_t size_ = 0;
  size_t released_ = 0;  // blocks
  std::array<Block, kSpares> spares_;
  size_t spare_count_ = 0;
};

}  // namespace etloop
