// Gives a connected session its backends: shared memory among the ranks of this host, and schedules over the
// data channels for everything else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rueda/backend/local/host.h"
#include "rueda/base/config.h"
#include "rueda/runtime/session.h"
#include "rueda/schedule/topology.h"

namespace rueda::runtime {

// Refuses RUEDA_ALGORITHM if no collective has an algorithm of that name, or if the algorithm breaks the
// order of sums that RUEDA_DETERMINISM asks for.
Status check_algorithm_settings(const Config& config);
// Why this job cannot send sums as this wire type; empty if it can.
std::string why_no_wire(const Config& config, Wire wire);

struct Prediction {
  int64_t bytes = 0;  // of a float32 allreduce over the world
  std::string text;   // what runs it, and the predicted time of every candidate
};
// Predictions for a few sizes; empty in a single-process job. Any thread.
std::vector<Prediction> predict_allreduces(const Session& session);

// The size of the buckets of a learned plan: large enough that the latency between hosts, as measured during
// init, is a small part of the time of a bucket, and small enough that reduction begins early in the backward
// pass and the last bucket is short. The same on every rank.
int64_t plan_bucket_bytes(const Session& session);
// The topology of the world, as the cost model sees it.
schedule::Topology world_topology(const Session& session);
// Microseconds of a bucket of so many bytes over the world, as predicted. Outlives the session.
std::function<double(int64_t bytes)> bucket_cost(const Session& session);

// Sets session.backends and session.on_data. host: null if no rank of this host shares memory with this one.
// Fails, on every rank alike, if the ranks cannot run what RUEDA_GPU_OPERATIONS names.
Status attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host);

}  // namespace rueda::runtime
