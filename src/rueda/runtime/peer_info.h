// What every rank publishes about itself before the first connection, and what follows from the peer info of
// all ranks. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/schedule/topology.h"

namespace rueda::runtime {

// How a rank can be reached: the names of the transports that it has, and its address in each.
using TransportAddresses = std::map<std::string, std::string, std::less<>>;

// What a rank says about NCCL.
struct NcclInfo {
  int32_t version = 0;  // of the library that it would use; 0: it cannot or need not use NCCL
  std::string why_not;  // the reason, if it cannot; empty: it has no CUDA driver, or is not to use NCCL

  bool operator==(const NcclInfo&) const = default;
};

// Settings that must be equal on all ranks: those of the root hold for the job (settings_of_job), and
// check_agreement refuses other values of gpu_operations, is_bitwise, cpu_operations and
// dynamic_process_sets. Settings that only the coordinator uses (fusion of tensors with a priority, cycle
// time, stalls, plans) are not published.
struct JobSettings {
  int64_t fusion_bytes = 0;
  int64_t chunk_bytes = 0;
  std::string algorithm;
  std::string gpu_operations;
  bool hierarchical_allreduce = false;
  int64_t staging_bytes = 0;
  std::string cuda_ipc;
  bool is_bitwise = false;  // RUEDA_DETERMINISM
  std::string cpu_operations;
  int64_t mpi_chunk_bytes = 0;
  bool group_fusion_disabled = false;
  bool dynamic_process_sets = false;

  bool operator==(const JobSettings&) const = default;
};

struct PeerInfo {
  std::string release;
  int64_t pid = 0;
  int64_t began = 0;      // the process, as in base/process.h
  int64_t pid_space = 0;  // in which pid counts, as in base/process.h
  std::string host;       // for people
  std::string host_key;   // equal exactly for the ranks of one host (name and network namespace)
  Rank local_rank = -1;   // as told by the launcher, -1 = not told
  Rank local_size = -1;
  Rank size = 0;  // of the world, as this rank was told
  TransportAddresses addresses;
  // Why it shares no memory with the other ranks of its host; empty: it does, or its settings do not ask for
  // it.
  std::string shared_memory_fault;
  bool has_arena = false;  // which the other ranks of its host map
  int32_t numa_node = 0;   // on which it ran when it published this
  NcclInfo nccl;
  // CUDA on this rank: the version of its driver, 0 if it has none that rueda can use, and why not. Devices
  // are found when the first tensor names one: a program may choose those that are visible after init.
  int32_t cuda_version = 0;
  std::string cuda_fault;
  // Why the MPI of this rank cannot be given CUDA memory; empty: it can, or this rank has no MPI or no CUDA.
  std::string mpi_device_fault;
  JobSettings settings;                         // as this rank was told
  std::vector<std::vector<Rank>> process_sets;  // static ones that this rank names, sorted (static_sets.h)
  std::vector<int32_t> own_sets;                // those of them, by place, for which others may name another

  bool operator==(const PeerInfo&) const = default;
};

Bytes encode(const PeerInfo& info);
void put_addresses(ByteWriter& out, const TransportAddresses& addresses);
TransportAddresses get_addresses(ByteReader& in);
Result<PeerInfo> decode_peer_info(std::span<const std::byte> raw);

// "rank 3 (host b, pid 4711)"
std::string describe(Rank rank, const PeerInfo& info);
// For a message that `reader` prints: "rank 3 (host b, pid 7 of its container)" if both are on one host, in
// containers with process ids of their own.
std::string describe(Rank rank, const PeerInfo& info, const PeerInfo& reader);

// Whether two ranks are on one host, and so share memory and a clock. Two machines may have the same name.
bool are_on_one_host(const std::vector<PeerInfo>& all, Rank one, Rank other);
// Whether one rank can find the other by its pid.
bool share_pids(const std::vector<PeerInfo>& all, Rank one, Rank other);
// Whether all ranks of the world are on one host.
bool is_one_host(const std::vector<PeerInfo>& all);

// What holds for the job. The root is rank 0 (runtime/hierarchy.h).
inline const JobSettings& settings_of_job(const std::vector<PeerInfo>& all) { return all.front().settings; }

// The placement of one rank.
struct RankPlacement {
  Rank local_rank = 0, local_size = 1, cross_rank = 0, cross_size = 1;
  bool is_homogeneous = true;
};

// Checks that releases, world sizes, and settings that every rank must have agree. The error names the first
// one that does not.
Status check_agreement(const std::vector<PeerInfo>& all);
Result<RankPlacement> place_of(Rank rank, const std::vector<PeerInfo>& all);
// Whether the job uses NCCL: if rank 0's settings allow it and all ranks can, with one version. The same on
// every rank. Which GPU a rank has is known only when it first uses one (backend/nccl/nccl.h).
struct NcclChoice {
  bool is_used = false;
  std::string why_not;  // a sentence that names the ranks; empty if no rank has asked for NCCL
};
NcclChoice choose_nccl(const std::vector<PeerInfo>& all);
// Whether the job gives CUDA memory to MPI: if rank 0 asks for MPI, and the MPI of all ranks takes it. The
// same on every rank.
struct DeviceMpiChoice {
  bool is_used = false;
  std::string why_not;  // a sentence that names a rank; empty if rank 0 has not asked for it
};
DeviceMpiChoice choose_device_mpi(const std::vector<PeerInfo>& all);
// The topology of a group: dense host indices in order of first appearance.
schedule::Topology topology_of(const std::vector<Rank>& members, const std::vector<PeerInfo>& all);

}  // namespace rueda::runtime
