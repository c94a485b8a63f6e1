#include "qp/scoreboard.h"

#include <algorithm>

namespace etloop {

using wire::psn_distance;

Scoreboard::Range Scoreboard::first_lost() const {
  const auto first = std::find_if(sent_.begin(), sent_.end(), [](const Sent& sent) { return sent.lost; });
  return {first->psn, first->count};
}

Scoreboard::Sent Scoreboard::rest_from(const Sent& sent, uint32_t psn) {
  const auto before = static_cast<uint32_t>(psn_distance(psn, sent.psn));
  return {psn, sent.count - before, sent.departure + before, sent.lost};
}

// Return the index of the first entry that begins at or after `psn`, splitting one that spans it.
size_t Scoreboard::split_at(uint32_t psn) {
  const auto at = std::partition_point(sent_.begin(), sent_.end(),
                                       [psn](const Sent& sent) { return psn_distance(end_of(sent), psn) <= 0; });
  if (at == sent_.end() || psn_distance(at->psn, psn) >= 0) return static_cast<size_t>(at - sent_.begin());
  const Sent rest = rest_from(*at, psn);
  at->count -= rest.count;
  const auto inserted = sent_.insert(at + 1, rest);
  return static_cast<size_t>(inserted - sent_.begin());
}

void Scoreboard::sent(uint32_t psn, uint32_t count) {
  const uint64_t departure = departures_ + 1;
  departures_ += count;
  under_way_ += count;
  // Fast path: new packets that follow the previous departure.
  if (!sent_.empty() && end_of(sent_.back()) == psn && !sent_.back().lost &&
      sent_.back().departure + sent_.back().count == departure) {
    sent_.back().count += count;
    return;
  }
  const size_t from = split_at(psn);
  const size_t to = split_at((psn + count) & wire::kPsnMask);
  for (size_t i = from; i < to; ++i) forget(sent_[i]);
  sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(from), sent_.begin() + static_cast<std::ptrdiff_t>(to));
  sent_.insert(sent_.begin() + static_cast<std::ptrdiff_t>(from), Sent{psn, count, departure, false});
}

void Scoreboard::note_arrived(const Sent& sent) {
  latest_arrived_ = std::max(latest_arrived_, sent.departure + sent.count - 1);
  forget(sent);
}

void Scoreboard::arrived_before(uint32_t psn) {
  if (sent_.empty() || psn_distance(psn, sent_.front().psn) <= 0) return;
  const size_t to = split_at(psn);
  for (size_t i = 0; i < to; ++i) note_arrived(sent_[i]);
  sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(to));
}

uint32_t Scoreboard::arrived(uint32_t psn, uint32_t count) {
  const size_t from = split_at(psn);
  const size_t to = split_at((psn + count) & wire::kPsnMask);
  uint32_t news = 0;
  for (size_t i = from; i < to; ++i) {
    note_arrived(sent_[i]);
    news += sent_[i].count;
  }
  sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(from), sent_.begin() + static_cast<std::ptrdiff_t>(to));
  return news;
}

void Scoreboard::mark_lost(Sent& sent) {
  if (sent.lost) return;
  sent.lost = true;
  if (asked_departure_ - sent.departure < sent.count) is_asked_lost_ = true;
  under_way_ -= sent.count;
  lost_packets_ += sent.count;
}

uint32_t Scoreboard::lose_overtaken() {
  const uint32_t known = lost_packets_;
  for (size_t i = 0; i < sent_.size(); ++i) {
    if (sent_[i].lost || sent_[i].departure > latest_arrived_) continue;
    const uint64_t overtaken = latest_arrived_ - sent_[i].departure + 1;
    if (overtaken < sent_[i].count) split_at((sent_[i].psn + static_cast<uint32_t>(overtaken)) & wire::kPsnMask);
    mark_lost(sent_[i]);
  }
  return lost_packets_ - known;
}

uint32_t Scoreboard::lose(uint32_t psn, uint32_t count) {
  const uint32_t known = lost_packets_;
  const size_t from = split_at(psn);
  const size_t to = split_at((psn + count) & wire::kPsnMask);
  for (size_t i = from; i < to; ++i) mark_lost(sent_[i]);
  return lost_packets_ - known;
}

void Scoreboard::doubt(uint32_t psn) {
  const size_t at = split_at(psn);
  if (at < sent_.size() && sent_[at].psn == psn) {
    lose(psn, 1);
    return;
  }
  sent_.insert(sent_.begin() + static_cast<std::ptrdiff_t>(at), Sent{psn, 1, 0, true});
  ++lost_packets_;
}

bool Scoreboard::newest(uint32_t& psn) const {
  if (sent_.empty()) return false;
  psn = (end_of(sent_.back()) - 1) & wire::kPsnMask;
  return true;
}

}  // namespace etloop
