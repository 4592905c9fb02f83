// Gives a connected session its backends: shared memory among the ranks of this host, and schedules over the
// data channels for everything else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rueda/backend/local/host.h"
#include "rueda/base/config.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {

// A forced algorithm that exists for no collective is a mistake; one that serves only some is not. Nor may it
// break the order of sums that was asked for.
Status check_algorithm_settings(const Config& config);

// host: null when no rank of this host shares memory with this one.
struct Prediction {
  int64_t bytes = 0;  // of a float32 allreduce over the world
  std::string text;   // what runs it, and the predicted time of every candidate
};
// Of a few sizes; empty in a single-process job. Any thread.
std::vector<Prediction> predict_allreduces(const Session& session);

// How large the buckets of a learned plan are: large enough that its latency is a small part of what a bucket
// takes between hosts, as measured when the job started; small enough that reduction begins early in the
// backward pass and the last bucket is not long. The same on every rank.
int64_t plan_bucket_bytes(const Session& session);

// Sets session.backends and session.on_data.
void attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host);

}  // namespace rueda::runtime
