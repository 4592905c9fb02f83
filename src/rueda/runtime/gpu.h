// CUDA in a job: whether this process has a driver, whether all ranks have one, and which backends then run
// calls in device memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {

// The driver that RUEDA_CUDA_LIBRARY names, or that of this machine. Does not initialise CUDA.
Result<std::shared_ptr<const cuda::Driver>> load_cuda(const Config& config);

// Sets session.devices, or session.cuda_fault. A machine without CUDA is no fault. Fails only if
// RUEDA_CUDA_LIBRARY names what cannot be loaded.
Status find_cuda(Session& session);

// Why calls in device memory cannot run although some rank has CUDA; it names the first rank that cannot.
// Empty if all ranks can, or none has CUDA. The same on every rank. Pure.
std::string why_no_devices(const std::vector<PeerInfo>& all);

// Those of a session, best first. The table has those for devices before those for hosts.
struct SessionBackends {
  std::vector<std::unique_ptr<backend::Backend>> for_devices, for_hosts;
  // Makes a backend for host memory on the sync channel; null in a job of one rank.
  std::function<std::unique_ptr<backend::Backend>()> make_for_host_sync;
};

// Adds the backends for device memory, if all ranks have CUDA: those of RUEDA_GPU_OPERATIONS and what is
// worse in the table, because the best way may not run every call.
Status add_gpu_backends(Session& session, SessionBackends& backends);

}  // namespace rueda::runtime
