// The port at which this rank answers Prometheus, if RUEDA_METRICS_PORT is set, and the token that opens it.
#pragma once

#include "rueda/base/handshake.h"
#include "rueda/runtime/engine.h"

namespace rueda::capi {

// job: of this job; a job of one process has none, and gets a secret of its own here. Without the port
// training goes on; a warning says why there is none.
void start_metrics_port(const runtime::Session& session, const Secret& job);
void stop_metrics_port();

}  // namespace rueda::capi
