#include "rueda/runtime/nccl.h"

#include <utility>

#include "rueda/backend/nccl/nccl.h"

namespace rueda::runtime {

void find_nccl(Session& session) {
  const Config& config = session.config;
  const bool is_asked_for = config.gpu_operations.empty() || config.gpu_operations == "nccl";
  if (session.devices == nullptr || !is_asked_for) return;
  if (config.determinism == "bitwise") {
    session.nccl_fault = "RUEDA_DETERMINISM=bitwise asks for sums in rank order.";
    return;
  }
  Result<std::shared_ptr<const nccl::Library>> opened = nccl::Library::open(config.nccl_library);
  if (opened.is_ok())
    session.nccl = std::move(opened).value();
  else
    session.nccl_fault = opened.status().why;
}

std::unique_ptr<backend::Backend> make_nccl_backend(const Session& session,
                                                    std::unique_ptr<backend::Backend> host) {
  return std::make_unique<backend::NcclBackend>(
      backend::NcclOptions{.library = session.nccl,
                           .devices = session.devices,
                           .host = std::move(host),
                           .local_rank = session.place.local_rank,
                           .patience = nanos(session.config.peer_timeout_s, kSecond)});
}

}  // namespace rueda::runtime
