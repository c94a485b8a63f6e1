// A source of transfers that is a Python object, called with the GIL: contract/model/transfer_source.py has its methods.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind/columns.h"
#include "virtual/transfer_source.h"

namespace etloop {

class PythonTransferSource final : public TransferSource {
 public:
  PythonTransferSource(nanobind::object source, const EnginePlan& plan) : source_(std::move(source)) {
    for (const nanobind::handle pair : nanobind::getattr(source_, "pairs")) {
      pairs_.push_back({nanobind::cast<int32_t>(pair[0]), nanobind::cast<int32_t>(pair[1]), nanobind::cast<int32_t>(pair[2]),
                        nanobind::cast<int32_t>(pair[3])});
    }
    if (const std::string wrong = validate(pairs_, plan); !wrong.empty()) throw nanobind::value_error(wrong.c_str());
    next_ns_ = nanobind::cast<Nanos>(nanobind::getattr(source_, "first_ns"));
  }

  std::span<const TransferPair> pairs() const override { return pairs_; }
  Nanos next_ns() const override { return next_ns_; }
  bool over() const override { return over_; }

  void act(Nanos now, std::span<const ArrivedTransfer> arrived, std::vector<StartedTransfer>& started) override {
    const nanobind::gil_scoped_acquire lock;
    try {
      nanobind::list ended;
      for (const ArrivedTransfer& transfer : arrived) ended.append(nanobind::make_tuple(transfer.id, transfer.at_ns));
      const nanobind::object answer = nanobind::getattr(source_, "act")(now, ended);
      for (const nanobind::handle transfer : answer[0]) {
        started.push_back({nanobind::cast<uint32_t>(transfer[0]), nanobind::cast<int64_t>(transfer[1]),
                           nanobind::cast<int32_t>(transfer[2])});
        const StartedTransfer& made = started.back();
        if (made.pair >= pairs_.size() || made.bytes < 1 || made.id < 0) {
          throw nanobind::value_error("a transfer over no pair, without bytes or with a negative number");
        }
      }
      const nanobind::object next = answer[1];
      over_ = next.is_none() && nanobind::cast<bool>(nanobind::getattr(source_, "over"));
      next_ns_ = next.is_none() ? kNever : nanobind::cast<Nanos>(next);
    } catch (...) {
      error_ = std::current_exception();
      started.clear();
      over_ = true;
    }
  }

  // Throw what Python raised during the run. Call with the GIL.
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  nanobind::object source_;
  std::vector<TransferPair> pairs_;
  Nanos next_ns_ = kNever;
  bool over_ = false;
  std::exception_ptr error_;
};

// The source of an argument; nullptr for None.
inline std::unique_ptr<PythonTransferSource> source_from(nanobind::handle source, const EnginePlan& plan) {
  if (source.is_none()) return nullptr;
  return std::make_unique<PythonTransferSource>(nanobind::borrow(source), plan);
}

}  // namespace etloop
