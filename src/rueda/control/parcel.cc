#include "rueda/control/parcel.h"

#include "rueda/base/limits.h"

namespace rueda::control {

bool rises(MessageType type) {
  switch (type) {
    case MessageType::kRequests:
    case MessageType::kAbort:
    case MessageType::kShutdown:
    case MessageType::kDone:
    case MessageType::kPlanDepart:
    case MessageType::kPlanPosition:
    case MessageType::kFacts:
    case MessageType::kProbe:
      return true;
    default:
      return false;
  }
}

Bytes encode(std::span<const Parcel> parcels) {
  ByteWriter writer;
  writer.put_list(parcels, [](ByteWriter& to, const Parcel& parcel) {
    put_ranks(to, parcel.from);
    to.put(parcel.type);
    to.put_vector(parcel.payload);
  });
  return std::move(writer).take();
}

Result<std::vector<Parcel>> decode_parcels(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  std::vector<Parcel> parcels = reader.get_list([](ByteReader& from) {
    Parcel parcel{.from = get_ranks(from), .type = from.get<MessageType>(), .payload = {}};
    if (!rises(parcel.type)) from.fail();
    parcel.payload = from.get_vector<std::byte>(kMaxMessageBytes);
    return parcel;
  });
  if (!is_whole(reader)) return malformed("parcels");
  return parcels;
}

}  // namespace rueda::control
