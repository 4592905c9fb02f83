#include "rueda/runtime/nccl.h"

#include <utility>

#include "rueda/backend/nccl/nccl.h"
#include "rueda/runtime/links.h"

namespace rueda::runtime {

namespace {

bool is_asked_for(const Config& config) {
  return config.gpu_operations.empty() || config.gpu_operations == "nccl";
}

}  // namespace

bool may_use_nccl(const Config& config) { return is_asked_for(config) && config.determinism != "bitwise"; }

void find_nccl(Session& session) {
  const Config& config = session.config;
  if (session.devices == nullptr || !is_asked_for(config)) return;
  if (!may_use_nccl(config)) {
    session.nccl_fault = "RUEDA_DETERMINISM=bitwise asks for sums in rank order.";
    return;
  }
  Result<std::shared_ptr<const nccl::Library>> opened = nccl::Library::open(config.nccl_library);
  if (opened.is_ok())
    session.nccl = std::move(opened).value();
  else
    session.nccl_fault = opened.status().why;
}

bool reduces_hierarchically(const JobSettings& settings) {
  return settings.hierarchical_allreduce || settings.algorithm == "two_level";
}

std::unique_ptr<backend::Backend> make_nccl_backend(const Session& session,
                                                    std::unique_ptr<backend::Backend> host) {
  std::function<schedule::Topology(const Group&)> topology;
  if (reduces_hierarchically(session.settings()))
    topology = [all = session.all.get()](const Group& group) { return topology_of(group.members, *all); };
  return std::make_unique<backend::NcclBackend>(backend::NcclOptions{
      .library = session.nccl,
      .devices = session.devices,
      .host = std::move(host),
      .pack_bytes = static_cast<size_t>(session.settings().fusion_bytes) / data_channels(*session.all),
      .local_rank = session.place.local_rank,
      .patience = nanos(session.config.peer_timeout_s, kSecond),
      .topology = std::move(topology)});
}

}  // namespace rueda::runtime
