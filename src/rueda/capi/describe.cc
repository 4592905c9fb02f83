#include <cstdlib>
#include <nlohmann/json.hpp>

#include "rueda/base/config_table.h"
#include "rueda/base/release.h"
#include "rueda/capi/forks.h"
#include "rueda/capi/json_text.h"
#include "rueda/capi/state.h"
#include "rueda/kernels/kernels.h"
#include "rueda/runtime/backends.h"
#include "rueda/runtime/gpu.h"
#include "rueda/runtime/nccl.h"
#include "rueda/store/world.h"

namespace rueda::capi {

namespace {

// What init would find. No launcher is named if the environment contradicts itself. The size is -1 if only
// the launcher itself knows it.
void add_launcher(nlohmann::ordered_json& out) {
  const Result<store::World> world = store::detect_own_world();
  if (world.is_ok()) out["launcher"] = world.value().launcher;
  if (world.is_ok()) out["launcher_size"] = world.value().size;
  out["launcher_reason"] = world.is_ok() ? world.value().reason : world.status().why;
}

// The MPI that init would load. It is looked for only where the environment asks for MPI, because a library
// stays loaded.
void add_mpi_to_come(nlohmann::ordered_json& out) {
  const auto get_env = [](const char* name) -> const char* { return std::getenv(name); };
  const Result<Config> config = parse_config(get_env);
  if (!config.is_ok() || config.value().cpu_operations != "mpi") return;
  const auto library = backend::mpi::find_library(config.value().mpi_library, get_env);
  if (library.is_ok())
    out["mpi"] = {{"library", library.value()->version()}, {"file", library.value()->path()}};
  else
    out["mpi"] = {{"problem", library.status().why}};
}

// The NCCL that a job with GPUs would use, unless its ranks differ.
void add_nccl_to_come(nlohmann::ordered_json& out) {
  const Result<Config> config = parse_config([](const char* name) { return std::getenv(name); });
  if (!config.is_ok() || !runtime::may_use_nccl(config.value())) return;
  if (!runtime::load_cuda(config.value()).is_ok()) return;
  const Result<int> version = nccl::Library::version_at(config.value().nccl_library);
  if (version.is_ok())
    out["nccl"] = version.value();
  else
    out["nccl_problem"] = version.status().why;
}

// The MPI through which the ranks met; it may run their collectives, too.
void add_mpi(nlohmann::ordered_json& out, const runtime::Session& session) {
  const backend::mpi::Process& mpi = *session.mpi->process;
  out["mpi"] = {{"library", mpi.library().version()},
                {"file", mpi.library().path()},
                {"thread_level", backend::mpi::name_of(mpi.thread_level())},
                {"is_initialized_here", mpi.was_initialized_here()},
                {"runs_collectives", session.settings().cpu_operations == "mpi"}};
}

// How the job runs calls in memory of devices: the best way that it has, or why it has none. The same on
// every rank.
nlohmann::ordered_json device_support(const runtime::Session& session) {
  if (session.backends == nullptr) return {{"backend", ""}};
  for (const auto& backend : session.backends->all())
    if (!backend->gpu_operations().empty()) return {{"backend", backend->gpu_operations()}};
  return {{"backend", ""}, {"reason", session.backends->why_no_devices()}};
}

void add_build(nlohmann::ordered_json& out, bool is_initialized) {
  out["release"] = kRelease;
  out["build"] = "GCC " __VERSION__;
  out["simd"] = kernels::active_target();
  out["is_initialized"] = is_initialized;
}

void add_place(nlohmann::ordered_json& out, const runtime::Session& session) {
  out["rank"] = session.me;
  out["size"] = session.size();
  out["host"] = (*session.all)[static_cast<size_t>(session.me)].host;
  out["launcher"] = session.launcher;
  out["launcher_reason"] = session.launcher_reason;
  if (!session.listen_host.empty()) out["address"] = session.listen_host;
}

void add_libraries(nlohmann::ordered_json& out, const runtime::Session& session) {
  if (session.mpi) add_mpi(out, session);
  if (session.nccl && runtime::choose_nccl(*session.all).is_used) out["nccl"] = session.nccl->version();
}

}  // namespace

std::string describe_to_children(const runtime::Engine& engine) {
  nlohmann::ordered_json out;
  add_build(out, true);
  add_place(out, engine.session());
  add_libraries(out, engine.session());
  return text_of(out);
}

std::string describe_json(const runtime::Engine* engine) {
  if (const Inherited* known = inherited()) return known->description;
  nlohmann::ordered_json out;
  add_build(out, engine != nullptr);
  if (engine == nullptr) {
    add_launcher(out);
    add_mpi_to_come(out);
    add_nccl_to_come(out);
    return text_of(out);
  }
  const runtime::Session& session = engine->session();
  const runtime::PeerInfo& mine = (*session.all)[static_cast<size_t>(session.me)];
  add_place(out, session);
  nlohmann::ordered_json peers = nlohmann::ordered_json::array();
  for (Rank peer = 0; session.links && peer < session.size(); ++peer) {
    const runtime::PeerInfo& info = (*session.all)[static_cast<size_t>(peer)];
    peers.push_back(
        {{"rank", peer}, {"host", info.host}, {"transport", session.links->transport_name(peer)}});
    if (const Nanos trip = session.links->round_trip(peer); trip > 0)
      peers.back()["round_trip_us"] = static_cast<double>(trip) / kMicrosecond;
  }
  out["peers"] = std::move(peers);
  out["cuda"] = {{"driver", mine.cuda_version}};  // 12040: of CUDA 12.4; 0: none
  const runtime::MeasuredLinks& links = session.measured;
  out["links"] = {
      {"local", {{"latency_us", links.local.latency_us}, {"gigabytes_per_s", links.local.gbps}}},
      {"remote", {{"latency_us", links.remote.latency_us}, {"gigabytes_per_s", links.remote.gbps}}}};
  out["device"] = device_support(session);
  out["predictions"] = nlohmann::ordered_json::array();
  for (const runtime::Prediction& one : runtime::predict_allreduces(session))
    out["predictions"].push_back({{"collective", "ALLREDUCE"}, {"bytes", one.bytes}, {"because", one.text}});
  for (const ConfigEntry& entry : config_table()) {
    out["settings"][std::string(entry.name)] = entry.print(session.config);
  }
  add_libraries(out, session);
  const runtime::EngineCounters& counters = engine->counters();
  out["counters"] = {{"control_messages", counters.control_messages.load()},
                     {"negotiation_messages", counters.negotiation_messages.load()},
                     {"plans", counters.plans.load()},
                     {"departures", counters.departures.load()},
                     {"planned_batches", counters.planned_batches.load()},
                     {"batches", counters.batches.load()},
                     {"tensors", counters.tensors.load()},
                     {"bytes", counters.bytes.load()}};
  out["wire"] = {{"default", name_of(session.config.wire)},
                 {"residual_bytes", counters.residual_bytes.load()}};
  out["last_algorithm"] = counters.algorithm.load();
  return text_of(out);
}

}  // namespace rueda::capi
