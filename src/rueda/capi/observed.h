// What this process shows to `rueda status`, `rueda stacks` and to collectors of metrics, and the endpoint
// through which it does. Any thread.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/config.h"
#include "rueda/runtime/engine.h"
#include "rueda/status/meters.h"
#include "rueda/status/metrics.h"

namespace rueda::capi {

// Of all epochs of this process.
const std::shared_ptr<status::Meters>& meters();

// Starts to answer, as the settings say; goes on if it does already. Without it training continues.
void start_endpoint(const Config& config);
void stop_endpoint();
// Writes the stacks of this process to the log, on the endpoint's thread; does nothing without an endpoint.
void log_stacks();

// Of this process at this moment. engine: null before init.
std::string snapshot_json(runtime::Engine* engine);
std::vector<status::Family> current_metrics(runtime::Engine* engine);
// rank, job and host, which tell the processes of a cluster apart.
status::Labels metric_labels(const runtime::Engine* engine);

}  // namespace rueda::capi
