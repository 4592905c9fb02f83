// What a job costs its hosts besides the bytes on links. `rueda simulate --validate` fits these numbers to a
// machine. Values.
#pragma once

#include <array>
#include <string_view>

namespace rueda::simulate {

struct Costs {
  double submit_us = 2;   // of the training thread, for each tensor
  double call_us = 10;    // of the engine thread, for each call
  double wake_us = 30;    // from the end of the last call until the training thread goes on
  double message_us = 5;  // of a core, for each message between hosts: to send it, and to receive it
  double byte_ns = 0.25;  // … and for each byte of it
  double copy_gbps = 6;   // gigabytes per second at which a rank packs and unpacks a fusion buffer
  double payload =
      0.957;  // the share of a link's rate that carries payload: 1448 of the 1514 bytes of a frame
  double control_us = 3;  // of rank 0, for each control message
  // How much longer computing takes because communication runs beside it; 0.2: a fifth.
  double slow_share = 0;
};

struct CostField {
  std::string_view name;
  double Costs::*field;
  double least, most;
};
inline constexpr std::array<CostField, 9> kCostFields = {{{"submit_us", &Costs::submit_us, 0, 1e6},
                                                          {"call_us", &Costs::call_us, 0, 1e6},
                                                          {"wake_us", &Costs::wake_us, 0, 1e6},
                                                          {"message_us", &Costs::message_us, 0, 1e6},
                                                          {"byte_ns", &Costs::byte_ns, 0, 1e3},
                                                          {"copy_gbps", &Costs::copy_gbps, 1e-3, 1e6},
                                                          {"payload", &Costs::payload, 0.01, 1},
                                                          {"control_us", &Costs::control_us, 0, 1e6},
                                                          {"slow_share", &Costs::slow_share, 0, 1}}};

}  // namespace rueda::simulate
