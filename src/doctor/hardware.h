// What the kernel says about network cards, memory nodes, clocks and GPUs. The functions change nothing. Each
// takes the root of the file system that it reads, "" for this machine's own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/report.h"

namespace rueda::doctor {

struct NetworkCard {
  bool is_physical = false;  // false: veth, bridge, bond, tunnel
  int64_t mbit_per_s = 0;    // 0 = unknown; virtual interfaces invent a number, which is not reported
  int mtu = 0;               // 0 = unknown
  int numa_node = -1;        // -1 = unknown, or the machine has one node
  std::string driver;        // "mlx5_core"; "" = unknown
};
NetworkCard read_network_card(const std::string& root, const std::string& interface);

// The interface whose address other hosts are told; "" = unknown. setting: the value of RUEDA_INTERFACE.
std::string interface_towards_others(const std::string& setting);

struct NumaNode {
  int number = 0;
  std::string cpus;  // "0-15,32-47"
};
std::vector<NumaNode> read_numa_nodes(const std::string& root);

struct ClockSource {
  std::string current, available;  // "tsc"; "tsc hpet acpi_pm"
};
ClockSource read_clock_source(const std::string& root);
// What doctor and preflight advise where is_clock_synchronised() is false.
constexpr std::string_view kNoTimeService =
    "the kernel knows of no time service that keeps the clock; run chrony or another";
// Whether a time service keeps the clock, as the kernel knows it.
bool is_clock_synchronised();

struct NvidiaGpus {
  std::vector<std::string> models;  // in the order of the bus
  std::string driver;               // "535.161.08"; "" = no driver
};
NvidiaGpus read_nvidia_gpus(const std::string& root);
struct CudaDriver {
  int version = 0;      // 12040: of CUDA 12.4; 0 = there is none
  std::string problem;  // why there is none, in the loader's words
};
// The driver's library for programs, by name or path. It stays loaded, and is not initialised.
CudaDriver find_cuda_driver(const std::string& library);
// What RUEDA_CUDA_LIBRARY names, else libcuda.so.1.
std::string cuda_library();

// "2.18.1" of 21801, as ncclGetVersion tells it.
std::string nccl_text(int version);
// The version of the libnccl.so.2 that the loader finds; "" = none. It stays loaded.
std::string find_nccl();

Section examine_hardware(const std::string& interface_setting);

}  // namespace rueda::doctor
