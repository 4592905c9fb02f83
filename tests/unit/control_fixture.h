// Builders the tests of the control module share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rueda/control/coordinator.h"
#include "rueda/control/planner.h"

namespace rueda::control {

inline TensorRequest allreduce(std::string name, std::vector<int64_t> shape = {4},
                               DType dtype = DType::kFloat32) {
  TensorRequest request;
  request.what = Collective::kAllreduce;
  request.name = std::move(name);
  request.shape = std::move(shape);
  request.dtype = dtype;
  return request;
}

inline TensorRequest collective(Collective what, std::string name, std::vector<int64_t> shape = {4}) {
  TensorRequest request = allreduce(std::move(name), std::move(shape));
  request.what = what;
  if (what == Collective::kBroadcast) request.root = 0;
  return request;
}

inline TensorRequest join(int64_t tag = 0) {
  TensorRequest request = collective(Collective::kJoin, "join.noname", {});
  request.tag = tag;
  return request;
}

inline Request add_set(std::vector<Rank> ranks) {
  return SetChange{.name = "add_process_set", .what = AddSet{std::move(ranks)}};
}

inline Request remove_set(int32_t id) {
  return SetChange{.name = "remove_process_set", .what = RemoveSet{id}};
}

// Those of one kind, in their order.
template <class T>
std::vector<T> all_of(const PlannerActions& actions) {
  std::vector<T> found;
  for (const PlannerAction& action : actions)
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}

// For Coordinator::may_begin_plan().
inline auto are_named(std::set<std::string> names) {
  return [names = std::move(names)](const TensorRequest& request) { return names.contains(request.name); };
}

// Tensors that may be submitted as they are.
struct Tensors : std::vector<TensorRequest> {
  using std::vector<TensorRequest>::vector;
  explicit(false) operator std::vector<Request>() const { return {begin(), end()}; }
};

// The members of one group, named as the API names them: base_1ofK, base_2ofK, …
inline Tensors group(const std::string& base, Tensors members) {
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
  return coordinator.take_ready();
}

template <class T>
bool is(const Response& response) {
  return std::holds_alternative<T>(response);
}

template <class T>
const T& as(const Response& response) {
  return std::get<T>(response);
}

// Why it failed, to be shown where it should not have.
inline std::string error_of(const Response& response) {
  return is<Failure>(response) ? as<Failure>(response).error : "it did not fail";
}

inline std::vector<std::string> names(const Response& response) {
  if (is<Joined>(response)) return as<Joined>(response).names;
  if (is<SetAdded>(response)) return as<SetAdded>(response).names;
  if (is<SetRemoved>(response)) return as<SetRemoved>(response).names;
  std::vector<std::string> out;
  if (is<Bucket>(response))
    for (const Entry& entry : as<Bucket>(response).entries) out.push_back(entry.name);
  if (is<Failure>(response))
    for (const FailedName& one : as<Failure>(response).failed) out.push_back(one.name);
  return out;
}

}  // namespace rueda::control
