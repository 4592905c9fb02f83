#include "rueda/runtime/backends.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "rueda/backend/local/cost.h"
#include "rueda/backend/local/local.h"
#include "rueda/backend/mpi/mpi.h"
#include "rueda/backend/native/native.h"
#include "rueda/backend/table.h"
#include "rueda/runtime/gpu.h"
#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/bucket_bytes.h"

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
  topology.chunk_bytes = settings_of_job(all).chunk_bytes;
  return topology;
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

schedule::Topology world_topology(const Session& session) {
  std::vector<Rank> world(session.all->size());
  std::iota(world.begin(), world.end(), 0);
  const schedule::Topology topology = measured_topology(world, *session.all, session.measured);
  return session.settings().is_bitwise ? topology.as_single_host() : topology;
}

std::string why_no_wire(const Config& config, Wire wire) {
  const std::string asked = "The wire type " + std::string(name_of(wire));
  if (config.determinism == "bitwise")
    return asked +
           " rounds sums where hosts meet, but RUEDA_DETERMINISM=bitwise asks for the bits of one host; "
           "unset one of them.";
  if (config.cpu_operations == "mpi")
    return asked +
           " needs rueda's own connections, but RUEDA_CPU_OPERATIONS=mpi hands sums to MPI; unset "
           "one of them.";
  return {};
}

Status check_algorithm_settings(const Config& config) {
  const std::string& name = config.algorithm;
  if (config.cpu_operations == "mpi" && (!name.empty() || config.determinism == "bitwise")) {
    return {
        Code::kInvalidArgument,
        (name.empty() ? "RUEDA_DETERMINISM=bitwise" : "RUEDA_ALGORITHM=" + name) +
            " cannot be kept with RUEDA_CPU_OPERATIONS=mpi, because MPI chooses how and in which order it "
            "adds; unset one of them."};
  }
  if (config.wire != Wire::kExact)
    if (const std::string why = why_no_wire(config, config.wire); !why.empty())
      return {Code::kInvalidArgument, why};
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
        schedule::explain(float_allreduce(bytes), topology, settings_of_job(all).algorithm);
    one.text = text.is_ok() ? text.value() : text.status().why;
  }
  return predictions;
}

int64_t plan_bucket_bytes(const Session& session) {
  if (is_one_host(*session.all)) return schedule::plan_bucket_bytes(schedule::Topology::single_host(1), {});
  return schedule::plan_bucket_bytes(world_topology(session), session.settings().algorithm);
}

std::function<double(int64_t bytes)> bucket_cost(const Session& session) {
  const std::vector<PeerInfo>& all = *session.all;
  const schedule::Topology topology = world_topology(session);
  if (session.reduces_in_shared_memory && is_one_host(all))
    return [ranks = all.size(), memory = backend::memory_cost(topology)](int64_t bytes) {
      const auto size = static_cast<size_t>(bytes);
      return schedule::kEngineUs +
             local_us(size, ranks, backend::local_algorithm(size, ranks, false), memory);
    };
  return schedule::bucket_cost(topology, settings_of_job(all).algorithm);
}

namespace {

// The connections from `first_channel` on. The functions capture only what outlives the backend. Only values
// that are equal on every rank decide which algorithm runs.
backend::Mesh make_mesh(Session& session, size_t first_channel) {
  Links* links = session.links.get();
  const std::vector<PeerInfo>* all = session.all.get();
  backend::Mesh mesh;
  mesh.endpoint = [links, first_channel](Rank peer, size_t channel) {
    return links->data(peer, first_channel + channel);
  };
  mesh.connect = [links](Rank peer) { return links->acquire(peer).status(); };
  mesh.describe = [links](Rank peer) { return links->describe_link(peer); };
  mesh.patience = nanos(session.config.peer_timeout_s, kSecond);
  mesh.topology = [all, measured = session.measured](const Group& group) {
    return measured_topology(group.members, *all, measured);
  };
  return mesh;
}

std::unique_ptr<backend::NativeBackend> make_native(Session& session) {
  const JobSettings& settings = session.settings();
  backend::NativeOptions options;
  options.algorithm = settings.algorithm;
  options.is_bitwise = settings.is_bitwise;
  options.chunk_bytes = settings.chunk_bytes;
  options.channels = data_channels(*session.all);
  return std::make_unique<backend::NativeBackend>(make_mesh(session, 0), std::move(options));
}

// Runs what a backend for device memory settles on the host, on the channel after the data channels.
std::unique_ptr<backend::NativeBackend> make_sync_backend(Session& session) {
  if (session.links == nullptr) return nullptr;
  backend::NativeOptions options;
  options.ticket_byte = 0x05;
  return std::make_unique<backend::NativeBackend>(make_mesh(session, data_channels(*session.all)),
                                                  std::move(options));
}

}  // namespace

Status attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host) {
  auto native = make_native(session);
  SessionBackends backends;
  session.on_data = [backend = native.get()](const transport::Completion& done) {
    backend->on_completion(done);
  };
  backends.make_for_host_sync = [&session, native = native.get()]() -> std::unique_ptr<backend::Backend> {
    auto made = make_sync_backend(session);
    if (made == nullptr) return nullptr;
    session.on_data = [native, sync = made.get()](const transport::Completion& done) {
      (sync->owns(done) ? sync : native)->on_completion(done);
    };
    return made;
  };
  session.reduces_in_shared_memory = host && session.settings().algorithm.empty();
  if (session.reduces_in_shared_memory)  // a forced algorithm is one of the schedules
    backends.for_hosts.push_back(std::make_unique<backend::LocalBackend>(std::move(host)));
  backends.for_hosts.push_back(std::move(native));
  if (session.mpi && session.settings().cpu_operations == "mpi") {
    const backend::mpi::MpiOptions mpi{.chunk_bytes = session.settings().mpi_chunk_bytes};
    backends.for_hosts.insert(backends.for_hosts.begin(), std::make_unique<backend::mpi::MpiBackend>(
                                                              session.mpi->process, session.mpi->team, mpi));
  }
  if (Status s = add_gpu_backends(session, backends); !s.is_ok()) return s;
  std::vector<std::unique_ptr<backend::Backend>> best_first = std::move(backends.for_devices);
  for (std::unique_ptr<backend::Backend>& each : backends.for_hosts) best_first.push_back(std::move(each));
  session.backends =
      std::make_unique<backend::BackendTable>(std::move(best_first), why_no_devices(*session.all));
  return Status::ok();
}

}  // namespace rueda::runtime
