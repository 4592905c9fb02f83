// The beginning and the end of the one engine behind the C ABI.
#pragma once

#include "rueda/base/status.h"
#include "rueda/runtime/bootstrap.h"

namespace rueda::capi {

Status init(runtime::InitOptions options);
void shutdown();

}  // namespace rueda::capi
