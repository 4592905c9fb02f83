// The settings as values, and what an entry of the table in config_table.h says of one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/base/transport_names.h"
#include "rueda/base/types.h"

namespace rueda {

struct Config {
  // scheduling
  int64_t fusion_bytes = 64 << 20;     // one fused transfer; 0 = no fusion
  int64_t priority_bytes = 2 << 20;    // one transfer of tensors with a priority
  double cycle_time_ms = 0;            // longest wait for more tensors; 0 = start as soon as one is ready
  bool group_fusion_disabled = false;  // members of a group fuse only with each other
  int64_t plan_bucket_bytes = 0;       // up to which learned plans fuse tensors; 0 = found for the fabric
  std::string tune = "auto";           // whether learned plans try other buckets: auto, on, off
  double tune_after_s = 20;            // how long a plan runs as it is before
  double tune_percent = 1;             // of the time, that trials may cost
  std::string tune_log;                // path of a log of what was tried; empty = none
  bool dynamic_process_sets = false;
  // diagnosis
  bool stall_check_disabled = false;
  double stall_warning_s = 60;
  double stall_shutdown_s = 1800;  // 0 = never
  double verdict_s = 5;            // others have waited for so long when a verdict names a rank
  bool check_numbers = false;      // NaN and infinity are looked for
  std::string timeline;            // path; "DYNAMIC": a timeline begins only with start_timeline
  bool timeline_mark_cycles = false;
  int64_t flight_record_bytes = 8 << 20;      // memory for what happened in the last minute; 0 = none
  std::string flight_record;                  // where it is written when an epoch breaks; empty: nowhere
  int flight_record_signal = 0;               // at which it is written as well; 0: none
  bool status = true;                         // this process answers `rueda status`
  std::string metrics_textfile;               // where metrics are written every second; empty: nowhere
  int64_t metrics_port = 0;                   // of local rank 0, for Prometheus; 0: none
  std::string metrics_address = "127.0.0.1";  // at which these ports listen
  std::string metrics_token_file;  // where the token of that port is written, or given; empty: private folder
  std::string log_level = "warning";
  bool log_hide_time = false;
  // wires
  std::string transports = default_transports();  // those allowed
  std::string algorithm;                          // forces one algorithm by name; empty = cost model
  Wire wire = Wire::kExact;                       // of float32 sums whose caller names none
  std::string determinism = "hosts";    // the order of sums depends on the hosts; "bitwise": on nothing
  std::string gpu_operations;           // a name of gpu_operations.h; empty = the best that the ranks have
  bool hierarchical_allreduce = false;  // NCCL inside hosts, rueda between them
  int64_t staging_bytes = 8 << 20;      // of a section on its way through pinned host memory
  std::string cuda_ipc = "auto";     // whether ranks of a host map one another's device memory: auto, on, off
  std::string cuda_library;          // path of libcuda.so.1; empty = as the loader finds it
  std::string interface;             // network interface or address to listen on; empty = chosen
  double start_timeout_s = 30;       // time until init must have connected all ranks
  double peer_timeout_s = 30;        // a silence of a rank or of its host that is shorter ends nothing
  int64_t shm_ring_bytes = 1 << 20;  // per directed pair of ranks on one host
  int64_t arena_bytes = 0;           // space for shared buffers; 0 = the machine's memory, if limits allow
  bool torch_arena = false;          // read by rueda.torch: gradients are allocated in shared buffers
  bool torch_c_hook = true;          // read by rueda.torch: autograd calls a hook in C, where torch allows it
  bool plans = true;                 // stop negotiating what recurs step after step
  int64_t chunk_bytes = 256 << 10;   // unit of pipelining
  std::string nccl_library;          // path of NVIDIA's NCCL; empty = the one that is loaded or installed
  std::string thread_affinity;       // comma list of cores, entry local_rank pins this engine thread
  // MPI
  std::string cpu_operations = "native";       // "mpi": collectives in host memory go through MPI
  std::string mpi_library;                     // its path; empty = looked for
  int64_t mpi_chunk_bytes = int64_t{1} << 30;  // of one operation of MPI at most
};

struct ConfigEntry {
  std::string_view name;      // "fusion_bytes"
  std::string_view env;       // "RUEDA_FUSION_THRESHOLD"
  std::string_view alias;     // "HOROVOD_FUSION_THRESHOLD", may be empty
  std::string_view type;      // "integer", "number", "boolean", "text"
  std::string_view unit;      // "bytes", "seconds", …
  std::string_view range;     // "0..", "trace|debug|…"
  std::string_view sentence;  // what it does
  std::function<Status(Config&, std::string_view text)> parse;
  std::function<std::string(const Config&)> print;
};

}  // namespace rueda
