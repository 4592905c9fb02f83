#include "rueda/runtime/backends.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "rueda/backend/local/cost.h"
#include "rueda/backend/local/local.h"
#include "rueda/backend/native/native.h"
#include "rueda/backend/table.h"
#include "rueda/runtime/gpu.h"
#include "rueda/schedule/algorithm.h"

namespace rueda::runtime {
namespace {

void apply(const MeasuredLink& measured, schedule::LinkCost& cost) {
  if (measured.gbps <= 0) return;
  cost.latency_us = measured.latency_us;
  cost.bandwidth_gbps = measured.gbps;
}

schedule::Topology measured_topology(const std::vector<Rank>& members, const std::vector<PeerInfo>& all,
                                     const MeasuredLinks& measured) {
  schedule::Topology topology = topology_of(members, all);
  apply(measured.local, topology.local);
  apply(measured.remote, topology.remote);
  topology.chunk_bytes = all.front().chunk_bytes;
  return topology;
}

// The topology of the world, as the cost model sees it.
schedule::Topology world_topology(const Session& session) {
  std::vector<Rank> world(session.all->size());
  std::iota(world.begin(), world.end(), 0);
  const schedule::Topology topology = measured_topology(world, *session.all, session.measured);
  return session.all->front().is_bitwise ? topology.as_single_host() : topology;
}

schedule::Spec float_allreduce(int64_t bytes) {
  return {.count = bytes / 4, .counts = {}, .scale = {}, .segment_counts = {}};
}

std::string explain_local(size_t bytes, size_t ranks, const backend::MemoryCost& memory) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "in shared memory, ";
  const backend::LocalAlgorithm algorithm = backend::local_algorithm(bytes, ranks, false);
  const backend::LocalAlgorithm in_arena = backend::local_algorithm(bytes, ranks, true);
  out << name_of(algorithm) << ": " << local_us(bytes, ranks, algorithm, memory) << " us";
  if (in_arena != algorithm)
    out << "; " << name_of(in_arena) << ": " << local_us(bytes, ranks, in_arena, memory)
        << " us where all tensors lie in shared buffers";
  return out.str();
}

}  // namespace

Status check_algorithm_settings(const Config& config) {
  const std::string& name = config.algorithm;
  const auto known = schedule::algorithms();
  if (name.empty()) return Status::ok();
  if (std::ranges::find(known, name, &schedule::Algorithm::name) != known.end()) {
    const bool breaks_order = std::ranges::any_of(known, [&](const schedule::Algorithm& algorithm) {
      return algorithm.name == name && algorithm.preserves_order != schedule::PreservesOrder::kAlways;
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
  return {Code::kInvalidArgument,
          "RUEDA_ALGORITHM=" + name + " is not an algorithm; use one of " + text + "."};
}

std::vector<Prediction> predict_allreduces(const Session& session) {
  const std::vector<PeerInfo>& all = *session.all;
  if (all.size() < 2) return {};
  const schedule::Topology topology = world_topology(session);
  const bool is_local = session.reduces_in_shared_memory && is_one_host(all);
  std::vector<Prediction> predictions;
  for (const int64_t bytes : {1 << 10, 64 << 10, 1 << 20, 64 << 20}) {
    Prediction& one = predictions.emplace_back(Prediction{.bytes = bytes, .text = {}});
    if (is_local) {
      one.text = explain_local(static_cast<size_t>(bytes), all.size(), backend::memory_cost(topology));
      continue;
    }
    const Result<std::string> text =
        schedule::explain(float_allreduce(bytes), topology, all.front().algorithm);
    one.text = text.is_ok() ? text.value() : text.status().why;
  }
  return predictions;
}

int64_t plan_bucket_bytes(const Session& session) {
  // Starting a bucket of 1 MiB costs nothing beside reducing it in memory (about 100 us).
  constexpr int64_t kLeast = 1 << 20, kMost = 16 << 20;
  constexpr double kLatencyShare = 0.2;  // of the time of a bucket; the bucket beside it uses the network
  if (is_one_host(*session.all)) return kLeast;
  const schedule::Topology topology = world_topology(session);
  const auto cost_us = [&](int64_t bytes) {
    const auto choice = schedule::choose(float_allreduce(bytes), topology, session.all->front().algorithm);
    return choice.is_ok() ? choice.value().cost_us : 0.0;
  };
  int64_t bytes = kLeast;
  double once = cost_us(bytes);
  while (bytes < kMost) {
    const double twice = cost_us(2 * bytes);
    const double latency = 2 * once - twice;  // what does not grow with the size
    if (latency <= kLatencyShare * once) break;
    bytes *= 2;
    once = twice;
  }
  return bytes;
}

Status attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host) {
  // The functions capture only what outlives the backend. Only values that are equal on every rank decide
  // which algorithm runs.
  Links* links = session.links.get();
  const std::vector<PeerInfo>* all = session.all.get();
  const MeasuredLinks measured = session.measured;
  backend::Mesh mesh;
  mesh.endpoint = [links](Rank peer, size_t channel) { return links->data(peer, channel); };
  mesh.connect = [links](Rank peer) { return links->acquire(peer).status(); };
  mesh.describe = [links](Rank peer) { return links->describe_link(peer); };
  mesh.patience = nanos(session.config.peer_timeout_s, kSecond);
  mesh.topology = [all, measured](const Group& group) {
    return measured_topology(group.members, *all, measured);
  };
  backend::NativeOptions options;
  options.algorithm = all->front().algorithm;
  options.is_bitwise = all->front().is_bitwise;
  options.chunk_bytes = all->front().chunk_bytes;
  options.channels = data_channels(*all);
  auto native = std::make_unique<backend::NativeBackend>(std::move(mesh), std::move(options));
  session.on_data = [backend = native.get()](const transport::Completion& done) {
    backend->on_completion(done);
  };
  SessionBackends backends;
  session.reduces_in_shared_memory = host && all->front().algorithm.empty();
  if (session.reduces_in_shared_memory)  // a forced algorithm is one of the schedules
    backends.for_hosts.push_back(std::make_unique<backend::LocalBackend>(std::move(host)));
  backends.for_hosts.push_back(std::move(native));
  if (Status s = add_gpu_backends(session, backends); !s.is_ok()) return s;
  std::vector<std::unique_ptr<backend::Backend>> best_first = std::move(backends.for_devices);
  for (std::unique_ptr<backend::Backend>& each : backends.for_hosts) best_first.push_back(std::move(each));
  session.backends =
      std::make_unique<backend::BackendTable>(std::move(best_first), why_no_devices(*session.all));
  return Status::ok();
}

}  // namespace rueda::runtime
