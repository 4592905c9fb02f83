#include "rueda/runtime/backends.h"

#include <algorithm>

#include "rueda/backend/local/local.h"
#include "rueda/backend/native/native.h"
#include "rueda/backend/table.h"
#include "rueda/schedule/algorithm.h"

namespace rueda::runtime {
namespace {

void apply(const MeasuredLink& measured, schedule::LinkCost& cost) {
  if (measured.gbps <= 0) return;
  cost.latency_us = measured.latency_us;
  cost.bandwidth_gbps = measured.gbps;
}

}  // namespace

Status check_algorithm_settings(const Config& config) {
  const std::string& name = config.algorithm;
  const auto known = schedule::algorithms();
  if (name.empty()) return Status::ok();
  if (std::ranges::find(known, name, &schedule::Algorithm::name) != known.end()) {
    const bool breaks_order = std::ranges::any_of(known, [&](const schedule::Algorithm& algorithm) {
      return algorithm.name == name && algorithm.keeps_order != schedule::Keeps::kAlways;
    });
    if (config.determinism != "bitwise" || !breaks_order) return Status::ok();
    return {Code::kInvalidArgument, "RUEDA_ALGORITHM=" + name +
                                        " does not sum in rank order, which RUEDA_DETERMINISM=bitwise asks "
                                        "for; unset one of them."};
  }
  std::vector<std::string_view> names;
  for (const schedule::Algorithm& algorithm : known) names.push_back(algorithm.name);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  for (const std::string_view one : names) text += (text.empty() ? "" : ", ") + std::string(one);
  return {Code::kInvalidArgument, "RUEDA_ALGORITHM=" + name + " is no algorithm; use one of " + text + "."};
}

void attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host) {
  // Only what outlives the backend is captured, and only values equal on every rank shape the choice.
  Links* links = session.links.get();
  const std::vector<Facts>* all = session.all.get();
  const MeasuredLinks measured = session.measured;
  const int64_t chunk_bytes = all->front().chunk_bytes;
  backend::Mesh mesh;
  mesh.endpoint = [links](Rank peer) { return links->data(peer); };
  mesh.topology = [all, measured, chunk_bytes](const Group& group) {
    schedule::Topology topology = topology_of(group.members, *all);
    apply(measured.local, topology.local);
    apply(measured.remote, topology.remote);
    topology.chunk_bytes = chunk_bytes;
    return topology;
  };
  backend::NativeOptions options;
  options.algorithm = all->front().algorithm;
  options.is_bitwise = all->front().is_bitwise;
  options.chunk_bytes = chunk_bytes;
  auto native = std::make_unique<backend::NativeBackend>(std::move(mesh), std::move(options));
  session.on_data = [backend = native.get()](const transport::Completion& done) {
    backend->on_completion(done);
  };
  std::vector<std::unique_ptr<backend::Backend>> backends;
  if (host && all->front().algorithm.empty())  // a forced algorithm is one of the schedules
    backends.push_back(std::make_unique<backend::LocalBackend>(std::move(host)));
  backends.push_back(std::move(native));
  session.backends = std::make_unique<backend::BackendTable>(std::move(backends));
}

}  // namespace rueda::runtime
