// How long a call by NCCL takes: latency and rate of its ring and of its tree, as the table in NCCL's
// src/graph/tuning.cc has them for the protocol Simple. That table has no row for an alltoall, which is a
// group of sends: it takes a step, and the busiest of the ring inside a host and the host's port. Pure.
//
// Example: 8 GPUs on 2 hosts, NVLink, a network of 10 GB/s. A ring takes 14 steps, two of them between the
// hosts: 8.4 + 12 * 3.4 + 2 * 9.6 = 68.4 us, and 1.75 times its bytes at 10 GB/s.
#pragma once

#include <array>
#include <string_view>

#include "rueda/base/types.h"

namespace rueda::simulate {

struct NcclLinks {
  int ranks = 1, hosts = 1;
  bool is_nvlink = true;     // within a host; otherwise PCIe
  double within_gbps = 100;  // gigabytes per second of a ring inside a host
  double network_gbps = 10;  // … and of the port of a host
};

struct NcclPrice {
  double latency_us = 0, transfer_us = 0;
  std::string_view algorithm;  // "ring", "tree", "sends"
};

inline constexpr std::array<std::string_view, 2> kNcclAlgorithms = {"ring", "tree"};

// forced: one of kNcclAlgorithms for allreduces between hosts, as NCCL_ALGO does (before version 2.4 NCCL had
// rings alone); empty: the cheaper one.
NcclPrice nccl_allreduce(double bytes, const NcclLinks& links, std::string_view forced = "");
// bytes: of a rank's input.
NcclPrice nccl_call(Collective what, double bytes, const NcclLinks& links, std::string_view forced = "");

}  // namespace rueda::simulate
