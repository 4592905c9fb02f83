// The beginning and the end of the one engine behind the C ABI.
#pragma once

#include "rueda/base/status.h"
#include "rueda/runtime/bootstrap.h"
#include "rueda/runtime/elastic_rank.h"

namespace rueda::capi {

Status init(runtime::InitOptions options);
void shutdown();
// Of an elastic job, while this process is in no epoch: returns when it belongs to the next view, in which
// the next init takes part.
Status join_view(const runtime::JoinRequest& request);

}  // namespace rueda::capi
