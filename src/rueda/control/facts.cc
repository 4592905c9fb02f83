#include "rueda/control/facts.h"

#include <utility>

#include "rueda/base/limits.h"
#include "rueda/control/message_types.h"

namespace rueda::control {

Bytes encode(const Facts& facts) {
  ByteWriter writer;
  writer.put(facts.use.cpu);
  writer.put(facts.use.major_faults);
  writer.put(facts.use.swapped_bytes);
  writer.put(facts.input_for);
  writer.put(static_cast<uint8_t>(facts.is_blocked));
  writer.put(facts.plan_number);
  writer.put(facts.plan_started);
  writer.put(facts.plan_stuck_for);
  writer.put_string(facts.plan_lacks);
  writer.put_list(facts.sightings, [](ByteWriter& to, const Sighting& sighting) {
    to.put(sighting.of);
    to.put(sighting.state);
  });
  writer.put(static_cast<uint8_t>(facts.not_finite.has_value()));
  if (facts.not_finite) {
    writer.put_string(facts.not_finite->tensor);
    writer.put(facts.not_finite->element);
    writer.put(facts.not_finite->call);
  }
  return std::move(writer).take();
}

Result<Facts> decode_facts(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Facts facts;
  facts.use.cpu = reader.get<Nanos>();
  facts.use.major_faults = reader.get<int64_t>();
  facts.use.swapped_bytes = reader.get<int64_t>();
  facts.input_for = reader.get<Nanos>();
  facts.is_blocked = reader.get<uint8_t>() != 0;
  facts.plan_number = reader.get<int64_t>();
  facts.plan_started = reader.get<int64_t>();
  facts.plan_stuck_for = reader.get<Nanos>();
  facts.plan_lacks = reader.get_string(kMaxNameBytes);
  facts.sightings = reader.get_list(kMaxRanks, [](ByteReader& from) {
    Sighting sighting{.of = from.get<Rank>(), .state = from.get<ProcessState>()};
    if (sighting.of < 0 || static_cast<int>(sighting.state) >= kProcessStates) from.fail();
    return sighting;
  });
  if (reader.get<uint8_t>() != 0)
    facts.not_finite = NotFinite{.tensor = reader.get_string(kMaxNameBytes),
                                 .element = reader.get<int64_t>(),
                                 .call = reader.get<int64_t>()};
  if (!is_whole(reader)) return malformed("facts");
  return facts;
}

}  // namespace rueda::control
