// The decoder without Python: framing over every split of a file, and faults that leave memory alone.
#include <random>
#include <string>
#include <vector>

#include "et_decoder.h"
#include "support/check.h"

using etloop::EtDecoder;
using etloop::EtFaultKind;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }

Bytes framed(std::string_view message) {
  std::string out(1, static_cast<char>(message.size()));
  out += message;
  return bytes(out);
}

// Metadata "1.0.0" and two nodes: id 5 with packed dependencies, id 6 with a comm_size of 3 and the group "7".
Bytes sample() {
  const std::string compute = "\x08\x05\x12\x01" "a\x18\x04\x2a\x02\x01\x02\x38\x09";
  const std::string size = "\x52\x0d\x0a\x09" "comm_size\x48\x03";
  const std::string group = "\x52\x0d\x0a\x07" "pg_name\xea\x01\x01" "7";
  Bytes file = framed("\x0a\x05" "1.0.0");
  for (const Bytes& node : {framed(compute), framed("\x08\x06\x12\x02" "bc\x18\x07" + size + group)})
    file.insert(file.end(), node.begin(), node.end());
  return file;
}

// Attributes and operations that few nodes have: flags of two dimensions, times in ns, and a storage node of 64 bytes.
Bytes rare_sample() {
  const std::string flags = std::string("\x52\x15\x0a\x0c" "involved_dim\xe2\x01\x04\x0a\x02\x01") + '\0';
  const std::string begin = "\x52\x0f\x0a\x0b" "start_nanos\x48\x07";
  Bytes file = framed("\x0a\x05" "1.0.0");
  for (const Bytes& node :
       {framed("\x08\x04\x12\x01" "a"), framed("\x08\x05\x12\x01" "a\x18\x07" + flags + begin),
        framed("\x08\x06\x12\x01" "b\x18\x08\x5a\x08\x08\x01\x52\x04\x08\x03\x28\x40")})
    file.insert(file.end(), node.begin(), node.end());
  return file;
}

void columns_of_few_nodes_begin_where_the_first_one_is() {
  EtDecoder decoder;
  CHECK(decoder.feed(rare_sample()));
  CHECK(decoder.finish());
  const auto column = [&](etloop::EtAttribute which) { return decoder.columns().numeric[static_cast<int>(which)]; };
  const int64_t absent = etloop::kAbsent;
  CHECK(column(etloop::EtAttribute::involved_dims) == (std::vector<int64_t>{absent, (int64_t{2} << 32) + 1, absent}));
  CHECK(column(etloop::EtAttribute::start_nanos) == (std::vector<int64_t>{absent, 7, absent}));
  CHECK(column(etloop::EtAttribute::moved_bytes) == (std::vector<int64_t>{absent, absent, 64}));
  CHECK(column(etloop::EtAttribute::duration_nanos).empty());
}

void check_sample(const EtDecoder& decoder) {
  const etloop::EtColumns& columns = decoder.columns();
  CHECK(decoder.whole());
  CHECK(columns.node_id == (std::vector<uint64_t>{5, 6}));
  CHECK(columns.data_deps == (std::vector<uint64_t>{1, 2}));
  CHECK(columns.data_dep_offsets == (std::vector<int64_t>{0, 2, 2}));
  CHECK(columns.duration_us == (std::vector<uint64_t>{9, 0}));
  CHECK(columns.byte_offset == (std::vector<uint64_t>{8, 22}));
  CHECK(columns.name_bytes == "abc");
  CHECK(columns.numeric[static_cast<int>(etloop::EtAttribute::comm_size)] == (std::vector<int64_t>{etloop::kAbsent, 3}));
  CHECK(columns.pg_name == (std::vector<int32_t>{-1, 0}));
  CHECK(columns.pg_names == std::vector<std::string>{"7"});
  CHECK(columns.version == "1.0.0");
}

void every_split_reads_the_same() {
  const Bytes file = sample();
  for (size_t first = 0; first <= file.size(); ++first) {
    for (size_t second = first; second <= file.size(); ++second) {
      EtDecoder decoder;
      // Copies of exact size, so that a sanitizer sees any reading beyond a piece.
      for (const Bytes& piece : {Bytes(file.begin(), file.begin() + static_cast<long>(first)),
                                 Bytes(file.begin() + static_cast<long>(first), file.begin() + static_cast<long>(second)),
                                 Bytes(file.begin() + static_cast<long>(second), file.end())})
        CHECK(decoder.feed(piece));
      CHECK(decoder.finish());
      check_sample(decoder);
    }
  }
}

void every_cut_is_a_fault_or_a_shorter_trace() {
  const Bytes file = sample();
  for (size_t size = 0; size < file.size(); ++size) {
    EtDecoder decoder;
    decoder.feed(Bytes(file.begin(), file.begin() + static_cast<long>(size)));
    const bool whole = decoder.finish();
    CHECK_EQ(whole, size == 8 || size == 22);
    if (!whole) CHECK(decoder.fault()->kind == (size == 0 ? EtFaultKind::empty : EtFaultKind::truncated));
  }
}

// Seeded, so that a failure comes back: any bytes give columns or one fault, in any chunking the same.
void mutants_never_differ_by_chunking() {
  std::mt19937 chance(20231010);
  for (int round = 0; round < 20'000; ++round) {
    Bytes mutant = round % 2 == 0 ? sample() : rare_sample();
    for (unsigned changes = 1 + chance() % 3; changes > 0; --changes) {
      mutant[chance() % mutant.size()] = static_cast<uint8_t>(chance());
    }
    mutant.resize(mutant.size() - chance() % 4);
    EtDecoder at_once;
    at_once.feed(mutant);
    at_once.finish();
    EtDecoder by_byte;
    for (const uint8_t byte : mutant) by_byte.feed({&byte, 1});
    by_byte.finish();
    CHECK_EQ(at_once.whole(), by_byte.whole());
    if (!at_once.whole()) {
      CHECK(at_once.fault()->what == by_byte.fault()->what);
      CHECK_EQ(at_once.fault()->byte_offset, by_byte.fault()->byte_offset);
      CHECK(at_once.fault()->node_id == by_byte.fault()->node_id);
    } else {
      CHECK(at_once.columns().node_id == by_byte.columns().node_id);
      for (int i = 0; i < etloop::kNumericAttributes; ++i) CHECK(at_once.columns().numeric[i] == by_byte.columns().numeric[i]);
    }
  }
}

void noise_is_refused_without_reading_far() {
  EtDecoder decoder;
  CHECK(!decoder.feed(bytes(std::string(4096, '\xff'))));
  CHECK_EQ(decoder.fault()->byte_offset, uint64_t{0});
  CHECK(!decoder.feed(sample()));
}

}  // namespace

int main() {
  every_split_reads_the_same();
  every_cut_is_a_fault_or_a_shorter_trace();
  columns_of_few_nodes_begin_where_the_first_one_is();
  mutants_never_differ_by_chunking();
  noise_is_refused_without_reading_far();
  return etloop::test::failures();
}
