#include "rueda/membership/vote.h"

#include <utility>

#include "rueda/base/limits.h"

namespace rueda::membership {
namespace {

void put_ballot(ByteWriter& out, const Ballot& ballot) {
  out.put(ballot.round);
  out.put_string(ballot.by);
}

Ballot get_ballot(ByteReader& in) {
  Ballot ballot;
  ballot.round = in.get<int64_t>();
  ballot.by = in.get_string(kMaxUidBytes);
  return ballot;
}

}  // namespace

Vote promise(Vote vote, const Ballot& ballot) {
  vote.promised = ballot;
  return vote;
}

Vote accept(const Ballot& ballot, const View& view) {
  return {.promised = ballot, .accepted = ballot, .view = view};
}

Vote closed() { return {.promised = {}, .accepted = {}, .view = {}, .is_closed = true}; }

Bytes encode(const Vote& vote) {
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(vote.is_closed));
  put_ballot(writer, vote.promised);
  put_ballot(writer, vote.accepted);
  if (vote.view) writer.put_vector(encode(*vote.view));
  return std::move(writer).take();
}

Result<Vote> decode_vote(std::span<const std::byte> bytes) {
  Vote vote;
  if (bytes.empty()) return vote;
  const Status malformed(Code::kPermissionDenied, "the vote of a member is malformed");
  ByteReader reader(bytes);
  const auto is_closed = reader.get<uint8_t>();
  vote.is_closed = is_closed == 1;
  vote.promised = get_ballot(reader);
  vote.accepted = get_ballot(reader);
  if (!reader.is_ok() || is_closed > 1 || vote.accepted > vote.promised || vote.accepted.round < 0)
    return malformed;
  const bool has_accepted = vote.accepted.round > 0;
  if (has_accepted == reader.is_at_end()) return malformed;
  if (!has_accepted) return vote;
  const auto raw = reader.get_vector<std::byte>(bytes.size());
  Result<View> view = decode_view(raw);
  if (!view.is_ok()) return view.status();
  if (!reader.is_at_end()) return malformed;
  vote.view = std::move(view).value();
  return vote;
}

}  // namespace rueda::membership
