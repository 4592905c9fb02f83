#include "rueda/membership/view.h"

#include <algorithm>

#include "rueda/base/limits.h"

namespace rueda::membership {
namespace {

Status malformed(const char* what) {
  return {Code::kPermissionDenied, std::string("the description of ") + what + " is malformed"};
}

}  // namespace

Rank View::rank_of(std::string_view uid) const {
  const auto at = std::ranges::find(members, uid, &Member::uid);
  return at == members.end() ? -1 : static_cast<Rank>(at - members.begin());
}

Commit View::commit() const {
  Commit newest = kNoCommit;
  for (const Member& one : members) newest = std::max(newest, one.commit);
  return newest;
}

std::vector<Rank> View::holders() const {
  std::vector<Rank> ranks;
  const Commit newest = commit();
  for (Rank rank = 0; newest != kNoCommit && rank < size(); ++rank)
    if (members[static_cast<size_t>(rank)].commit == newest) ranks.push_back(rank);
  return ranks;
}

std::vector<Rank> View::joined() const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < size(); ++rank)
    if (members[static_cast<size_t>(rank)].is_new) ranks.push_back(rank);
  return ranks;
}

Position position_of(Rank rank, const View& view) {
  const std::string& mine = view.members[static_cast<size_t>(rank)].host;
  struct Host {
    std::string_view name;
    Rank ranks = 0;
  };
  std::vector<Host> hosts;
  Position place{.local_rank = 0, .local_size = 0, .cross_rank = 0, .cross_size = 0};
  for (Rank other = 0; other < view.size(); ++other) {
    const std::string& name = view.members[static_cast<size_t>(other)].host;
    auto host = std::ranges::find(hosts, std::string_view(name), &Host::name);
    if (host == hosts.end()) host = hosts.insert(host, Host{name});
    if (other == rank) place.local_rank = host->ranks;
    ++host->ranks;
  }
  bool is_before = true;
  for (const Host& host : hosts) {
    if (host.name == mine) place.local_size = host.ranks;
    is_before = is_before && host.name != mine;
    if (host.ranks <= place.local_rank) continue;
    ++place.cross_size;
    if (is_before) ++place.cross_rank;
  }
  return place;
}

Bytes encode(const View& view) {
  ByteWriter writer;
  writer.put(view.number);
  writer.put_list(view.members, [](ByteWriter& out, const Member& one) {
    out.put_string(one.uid);
    out.put_string(one.host);
    out.put(one.commit);
    out.put(static_cast<uint8_t>(one.is_new));
    out.put_string(one.contact);
  });
  writer.put_list(view.lost, [](ByteWriter& out, const Uid& uid) { out.put_string(uid); });
  return std::move(writer).take();
}

Bytes encode(const Ready& ready) {
  ByteWriter writer;
  writer.put_string(ready.uid);
  writer.put_string(ready.host);
  writer.put(ready.after);
  writer.put(ready.commit);
  writer.put_string(ready.digest);
  writer.put_string(ready.cut_from);
  writer.put_string(ready.contact);
  return std::move(writer).take();
}

Result<View> decode_view(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  View view;
  view.number = reader.get<int64_t>();
  view.members = reader.get_list(kMaxRanks, [](ByteReader& in) {
    Member one;
    one.uid = in.get_string(kMaxUidBytes);
    one.host = in.get_string(kMaxUidBytes);
    one.commit = in.get<Commit>();
    one.is_new = in.get<uint8_t>() != 0;
    one.contact = in.get_string(kMaxContactBytes);
    return one;
  });
  view.lost = reader.get_list(kMaxRanks, [](ByteReader& in) { return in.get_string(kMaxUidBytes); });
  if (!reader.is_ok() || !reader.is_at_end() || view.number < 1) return malformed("a view");
  return view;
}

Result<Ready> decode_ready(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Ready ready;
  ready.uid = reader.get_string(kMaxUidBytes);
  ready.host = reader.get_string(kMaxUidBytes);
  ready.after = reader.get<int64_t>();
  ready.commit = reader.get<Commit>();
  ready.digest = reader.get_string(kMaxDigestBytes);
  ready.cut_from = reader.get_string(kMaxUidBytes);
  ready.contact = reader.get_string(kMaxContactBytes);
  const bool is_whole = reader.is_ok() && reader.is_at_end();
  if (!is_whole || ready.uid.empty() || ready.after < 0 || ready.commit < kNoCommit)
    return malformed("a member that is ready");
  return ready;
}

}  // namespace rueda::membership
