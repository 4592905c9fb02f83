// What one host says about itself, as values and as one line of JSON. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"

namespace rueda::preflight {

struct HostFacts {
  std::string host;
  std::string release;          // of the command
  std::string library_release;  // of librueda.so; "" = it cannot be loaded
  std::string library_id;       // of its bytes: 16 hexadecimal digits
  std::string library_path;
  std::string library_problem;                  // why it cannot be loaded
  std::map<std::string, std::string> packages;  // of Python, and Python itself: name, version
  std::string python_problem;

  std::string kernel;
  int cores = 0;               // that this process may use
  int64_t memory_bytes = 0;    // of the machine, or the limit of the control group if that is less
  int64_t open_files = 0;      // the hard limit, to which the library raises the soft one
  int64_t locked_bytes = 0;    // RLIMIT_MEMLOCK; -1 = no limit
  int64_t shm_free_bytes = 0;  // in /dev/shm; -1 = not mounted
  bool has_memfd = false;      // ranks can share memory
  int64_t free_ports = 0;      // local ports that are left for connections
  bool can_listen = false;     // a TCP port could be had

  std::string clock_source;  // "tsc"
  bool is_clock_synchronised = false;

  std::string interface;        // towards other hosts; "" = unknown
  int64_t card_mbit_per_s = 0;  // 0 = unknown, or not a card (veth, bond)
  int mtu = 0;
  int numa_node = -1;

  std::vector<std::string> gpus;  // models
  std::string gpu_driver;
  std::string nccl;  // the version that a plain dlopen finds; pip's is among the packages

  bool operator==(const HostFacts&) const = default;
};

std::string encode(const HostFacts& facts);  // one line
Result<HostFacts> decode_facts(std::string_view text);

}  // namespace rueda::preflight
