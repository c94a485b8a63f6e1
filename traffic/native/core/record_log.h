// Records in the order in which they were made, in blocks that are used again once they were read: what a long run keeps in
// memory is what nobody has taken yet. One thread writes and lets go; another may read what it was told is there.
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
  static constexpr size_t kBlockRecords = 4096;  // 352 KiB
  // Blocks at hand, so that a writer whose reader keeps up allocates none.
  static constexpr size_t kSpares = 8;

  // How many records there will be at most; before the first.
  void reserve(size_t records) {
    assert(size_ == 0);
    block_records_ = std::clamp(records, size_t{1}, kBlockRecords);
    blocks_.resize((records + block_records_ - 1) / block_records_);
    const size_t spares = std::min(blocks_.size(), kSpares / 2);
    for (size_t i = 0; i < spares; ++i) give(std::make_unique_for_overwrite<OpRecord[]>(block_records_));
  }

  // ---- the writer's

  void push_back(const OpRecord& record) {
    const size_t block = size_ / block_records_;
    if (size_ % block_records_ == 0) {
      if (block == blocks_.size()) blocks_.emplace_back();  // more than was said: nobody reads while that can be
      blocks_[block] = take_spare();
    }
    blocks_[block][size_ % block_records_] = record;
    ++size_;
  }
  // Records before `end` were read, and are not looked at again.
  void release(size_t end) {
    // A block that is full only: the last one is still being written.
    for (const size_t full = end / block_records_; released_ < full; ++released_) give(std::move(blocks_[released_]));
  }
  size_t released() const { return released_ * block_records_; }
  size_t size() const { return size_; }
  const OpRecord& operator[](size_t index) const {
    assert(index < size_);
    return blocks_[index / block_records_][index % block_records_];
  }

  // ---- the reader's; `end` is a size that the writer has published

  // Records from `first` on that lie together; empty only if `first` is `end`.
  std::span<const OpRecord> piece(size_t first, size_t end) const {
    if (first >= end) return {};
    const size_t within = first % block_records_;
    const size_t count = std::min(end - first, block_records_ - within);
    return {blocks_[first / block_records_].get() + within, count};
  }

 private:
  using Block = std::unique_ptr<OpRecord[]>;

  void give(Block block) {
    if (spare_count_ < kSpares) spares_[spare_count_++] = std::move(block);
  }
  Block take_spare() {
    if (spare_count_ > 0) return std::move(spares_[--spare_count_]);
    // The reader is behind by all of them: losing records is worse than an allocation.
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
