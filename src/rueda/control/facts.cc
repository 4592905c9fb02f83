#include "rueda/control/facts.h"

#include <utility>

#include "rueda/base/limits.h"
#include "rueda/control/message_types.h"

namespace rueda::control {
namespace {

constexpr int64_t kMostCounted = int64_t{1} << 56;  // bytes or nanoseconds: sums stay within 64 bits

bool is_count(int64_t number) { return number >= 0 && number <= kMostCounted; }

}  // namespace

Bytes encode(const Facts& facts) {
  ByteWriter writer;
  writer.put(facts.use.at);
  writer.put(facts.use.cpu);
  writer.put(facts.use.major_faults);
  writer.put(facts.use.swapped_bytes);
  writer.put(facts.input_for);
  writer.put(static_cast<uint8_t>(facts.is_blocked));
  writer.put(facts.plan_number);
  writer.put(facts.plan_started);
  writer.put(facts.plan_open);
  writer.put(facts.plan_stuck_for);
  writer.put_string(facts.plan_lacks);
  writer.put(facts.participation.at);
  writer.put(facts.participation.in_world);
  writer.put(facts.participation.in_any);
  writer.put_list(facts.peer_processes, [](ByteWriter& to, const PeerProcess& peer) {
    to.put(peer.of);
    to.put(peer.state);
  });
  writer.put(static_cast<uint8_t>(facts.not_finite.has_value()));
  if (facts.not_finite) {
    writer.put_string(facts.not_finite->tensor);
    writer.put(facts.not_finite->element);
    writer.put(facts.not_finite->call);
  }
  writer.put_list(facts.unreached, [](ByteWriter& to, const Unreached& one) {
    to.put(one.of);
    to.put(one.age);
  });
  return std::move(writer).take();
}

Result<Facts> decode_facts(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Facts facts;
  facts.use.at = reader.get<Nanos>();
  facts.use.cpu = reader.get<Nanos>();
  facts.use.major_faults = reader.get<int64_t>();
  facts.use.swapped_bytes = reader.get<int64_t>();
  facts.input_for = reader.get<Nanos>();
  facts.is_blocked = reader.get<uint8_t>() != 0;
  facts.plan_number = reader.get<int64_t>();
  facts.plan_started = reader.get<int64_t>();
  facts.plan_open = reader.get<int64_t>();
  facts.plan_stuck_for = reader.get<Nanos>();
  facts.plan_lacks = reader.get_string(kMaxNameBytes);
  facts.participation = {
      .at = reader.get<Nanos>(), .in_world = reader.get<Nanos>(), .in_any = reader.get<Nanos>()};
  if (!is_count(facts.participation.in_world) || !is_count(facts.participation.in_any)) reader.fail();
  facts.peer_processes = reader.get_list(kMaxRanks, [](ByteReader& from) {
    PeerProcess peer{.of = from.get<Rank>(), .state = from.get<ProcessState>()};
    if (peer.of < 0 || static_cast<int>(peer.state) >= kProcessStates) from.fail();
    return peer;
  });
  if (reader.get<uint8_t>() != 0)
    facts.not_finite = NotFinite{.tensor = reader.get_string(kMaxNameBytes),
                                 .element = reader.get<int64_t>(),
                                 .call = reader.get<int64_t>()};
  facts.unreached = reader.get_list(kMaxRanks, [](ByteReader& from) {
    const Unreached one{.of = from.get<Rank>(), .age = from.get<Nanos>()};
    if (one.of < 0 || !is_count(one.age)) from.fail();
    return one;
  });
  if (!is_whole(reader)) return malformed("facts");
  return facts;
}

}  // namespace rueda::control
