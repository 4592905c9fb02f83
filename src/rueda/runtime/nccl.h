// NCCL as a part of init: what this rank has, and whether the ranks use it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {

// Whether the settings of this rank leave room for NCCL.
bool may_use_nccl(const Config& config);

// Sets session.nccl, or session.nccl_fault, if this rank has CUDA and its settings allow NCCL. Does not
// initialise CUDA.
void find_nccl(Session& session);

// Whether allreduces are to be hierarchical where they can be.
bool reduces_hierarchically(const JobSettings& settings);

// The backend, for a job that uses NCCL. host: as in NcclOptions.
std::unique_ptr<backend::Backend> make_nccl_backend(const Session& session,
                                                    std::unique_ptr<backend::Backend> host);

}  // namespace rueda::runtime
