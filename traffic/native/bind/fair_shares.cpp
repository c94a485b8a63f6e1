// Python's view of max-min fair shares, for networks whose flows are not those of a plan, and the ECMP keys of such flows.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ip_address.h"
#include "bind/columns.h"
#include "switch/switch_model.h"
#include "virtual/fair_shares.h"
#include "virtual/twin_frames.h"
#include "wire/wire.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {

namespace {

using LinkColumn = nb::ndarray<const int32_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PartColumn = nb::ndarray<const float, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Shares with every number checked.
class BoundShares {
 public:
  explicit BoundShares(const std::vector<int64_t>& link_bps) : shares_(checked(link_bps)) {}

  uint32_t begin(const LinkColumn& links, const PartColumn& parts) {
    if (links.shape(0) != parts.shape(0) || links.shape(0) == 0) throw nb::value_error("a way needs links, and a part of each");
    way_.clear();
    for (size_t i = 0; i < links.shape(0); ++i) {
      const LinkShare share{links.data()[i], parts.data()[i]};
      if (share.link < 0 || static_cast<size_t>(share.link) >= shares_.links()) throw nb::value_error("a way over no link");
      if (!(share.part > 0 && share.part <= 1)) throw nb::value_error("a part of a way is not in (0, 1]");
      for (const LinkShare& earlier : way_) {
        if (earlier.link == share.link) throw nb::value_error("a way takes a link twice");
      }
      way_.push_back(share);
    }
    const uint32_t flow = shares_.begin(way_);
    if (flow >= live_.size()) live_.resize(flow + 1, false);
    live_[flow] = true;
    return flow;
  }

  void end(uint32_t flow) {
    if (flow >= live_.size() || !live_[flow]) throw nb::value_error("no such flow");
    live_[flow] = false;
    shares_.end(flow);
  }

  // Return the flows whose rate has changed, and their rates.
  std::pair<nb::bytes, nb::bytes> settle() {
    const std::span<const uint32_t> changed = shares_.settle(0);
    rates_bps_.clear();
    for (const uint32_t flow : changed) rates_bps_.push_back(shares_.rate_bps(flow));
    return {as_bytes(changed.data(), changed.size()), as_bytes(rates_bps_.data(), rates_bps_.size())};
  }

 private:
  static const std::vector<int64_t>& checked(const std::vector<int64_t>& link_bps) {
    for (const int64_t bps : link_bps) {
      if (bps <= 0) throw nb::value_error("a link without a rate");
    }
    return link_bps;
  }

  FairShares shares_;
  std::vector<bool> live_;
  std::vector<LinkShare> way_;
  std::vector<double> rates_bps_;
};

// Return the ECMP keys of RoCEv2 data from `src_ip` to each of `dst_ips`, row by row.
nb::bytes five_tuple_keys(const std::string& src_ip, const std::vector<std::string>& dst_ips,
                          const std::vector<uint16_t>& src_ports, HashFields fields) {
  if (dst_ips.size() != src_ports.size()) throw nb::value_error("addresses and source ports differ in length");
  const auto address_of = [](const std::string& text) {
    const std::optional<IpAddress> address = IpAddress::parse(text);
    if (!address) throw nb::value_error(("not an IP address: " + text.substr(0, 64)).c_str());
    return *address;
  };
  const IpAddress src = address_of(src_ip);
  std::vector<uint64_t> keys(dst_ips.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = hash_key(headers_of(src, address_of(dst_ips[i]), src_ports[i], wire::kRoceUdpPort), fields);
  }
  return as_bytes(keys.data(), keys.size());
}

}  // namespace

void bind_fair_shares(nb::module_& module) {
  nb::class_<BoundShares>(module, "FairShares")
      .def(nb::init<const std::vector<int64_t>&>(), "link_bps"_a)
      .def(nb::init<const BoundShares&>(), "other"_a)
      .def("begin", &BoundShares::begin, "links"_a, "parts"_a)
      .def("end", &BoundShares::end, "flow"_a)
      .def("settle", &BoundShares::settle);
  module.def("five_tuple_keys", &five_tuple_keys, "src_ip"_a, "dst_ips"_a, "src_ports"_a, "fields"_a);
}

}  // namespace etloop
