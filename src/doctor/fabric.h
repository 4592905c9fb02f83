// The cards for RDMA, UCX, and which transport pairs of ranks would use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/report.h"

namespace rueda::doctor {

// One port of a card, in the words of /sys/class/infiniband.
struct RdmaPort {
  std::string card;        // "mlx5_0"
  std::string port;        // "1"
  std::string state;       // "ACTIVE"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::string link_layer;  // "InfiniBand", or "Ethernet" for RoCE
};
// folder: /sys/class/infiniband, or one like it. Empty: there are no cards.
std::vector<RdmaPort> rdma_ports(const std::string& folder);

// What is known of libucp.so.0 on this host.
struct UcxFound {
  std::string version;  // "1.13.1"; "" = it cannot be loaded
  std::string why_not;  // what the loader says then
};
UcxFound find_ucx();

// Pure. transports: the value of RUEDA_TRANSPORTS; ucx_tls: that of UCX_TLS, "" = not set.
Section describe_fabric(const std::vector<RdmaPort>& ports, const UcxFound& ucx, std::string_view transports,
                        std::string_view ucx_tls);

Section examine_fabric(std::string_view transports);

}  // namespace rueda::doctor
