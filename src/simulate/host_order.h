// In which order the hosts of a cluster are given to the job: `rueda simulate --host-order`. Pure.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "simulate/cluster.h"

namespace rueda::simulate {

// order: "" or "given" as the cluster has them; "best" the order whose slowest link around a ring is fastest
// (launch/host_order.h); otherwise the names of all hosts, "a,c,b".
Result<Cluster> order_hosts(Cluster cluster, std::string_view order);

}  // namespace rueda::simulate
