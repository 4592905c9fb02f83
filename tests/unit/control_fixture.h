// Builders the tests of the control room share.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rueda/control/coordinator.h"

namespace rueda::control {

inline Request allreduce(std::string name, std::vector<int64_t> shape = {4}, DType dtype = DType::kFloat32) {
  Request request;
  request.what = Collective::kAllreduce;
  request.name = std::move(name);
  request.shape = std::move(shape);
  request.dtype = dtype;
  return request;
}

inline Request collective(Collective what, std::string name, std::vector<int64_t> shape = {4}) {
  Request request = allreduce(std::move(name), std::move(shape));
  request.what = what;
  if (what == Collective::kBroadcast) request.root = 0;
  return request;
}

inline Request join(int64_t tag = 0) {
  Request request = collective(Collective::kJoin, "join.noname", {});
  request.tag = tag;
  return request;
}

inline Request add_set(std::vector<Rank> ranks) {
  Request request;
  request.kind = Request::Kind::kAddSet;
  request.name = "add_process_set";
  request.set_ranks = std::move(ranks);
  return request;
}

inline Request remove_set(int32_t id) {
  Request request;
  request.kind = Request::Kind::kRemoveSet;
  request.name = "remove_process_set";
  request.set_id = id;
  return request;
}

// The members of one group, named as the API names them: base_1ofK, base_2ofK, …
inline std::vector<Request> group(const std::string& base, std::vector<Request> members) {
  const std::string of = "of" + std::to_string(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].name = base + "_" + std::to_string(i + 1) + of;
    members[i].group_index = static_cast<int32_t>(i);
    members[i].group_size = static_cast<int32_t>(members.size());
    members[i].group_name = members.size() > 1 ? base + "_1" + of : "";
  }
  return members;
}

inline CoordinatorOptions world_of(Rank size) {
  CoordinatorOptions options;
  options.world_size = size;
  return options;
}

// One request of each rank of the world, all in one round.
inline std::vector<Response> run(Coordinator& coordinator, const std::vector<Request>& by_rank) {
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    coordinator.submit(static_cast<Rank>(rank), {by_rank[rank]}, 0, nullptr);
  return coordinator.take_ready(0, nullptr);
}

inline std::vector<std::string> names(const Response& response) {
  std::vector<std::string> out;
  for (const Entry& entry : response.entries) out.push_back(entry.name);
  return out;
}

}  // namespace rueda::control
