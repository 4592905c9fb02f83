#include "rueda/runtime/peer_info.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "rueda/backend/nccl/library.h"
#include "rueda/base/gpu_operations.h"
#include "rueda/base/limits.h"

namespace rueda::runtime {
namespace {

constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxTransports = 64;

std::string rank_text(Rank rank) { return "rank " + std::to_string(rank); }

// Settings that say where a rank's calls go, or what their bits are. To take those of rank 0 would change
// what somebody has asked for, or send the calls of one rank elsewhere.
Status check_equal_settings(const JobSettings& first, const JobSettings& other, const std::string& whom) {
  struct Compared {
    const char* variable;
    std::string of_first, of_other;
  };
  const auto determinism = [](const JobSettings& one) { return one.is_bitwise ? "bitwise" : "hosts"; };
  const std::array<Compared, 3> settings = {
      {{"RUEDA_CPU_OPERATIONS", first.cpu_operations, other.cpu_operations},
       {"RUEDA_GPU_OPERATIONS", first.gpu_operations, other.gpu_operations},
       {"RUEDA_DETERMINISM", determinism(first), determinism(other)}}};
  for (const auto& [variable, of_first, of_other] : settings) {
    if (of_first == of_other) continue;
    const std::string name = variable;
    const std::string theirs =
        of_other.empty() ? whom + " has no " + name : whom + " has " + name + "=" + of_other;
    return {Code::kInvalidArgument, theirs + " but rank 0 has " + (of_first.empty() ? "none" : of_first) +
                                        "; set it alike on all ranks."};
  }
  return Status::ok();
}

// The end of a sentence about a rank that has said no version: only what that rank has published.
std::string why_without_nccl(const PeerInfo& info) {
  if (!info.nccl.why_not.empty()) return " cannot use NCCL: " + info.nccl.why_not;
  if (!info.cuda_fault.empty()) return " cannot use CUDA: " + info.cuda_fault;
  if (info.cuda_version == 0) return " has no CUDA driver.";
  if (!info.settings.gpu_operations.empty() && info.settings.gpu_operations != "nccl")
    return " has RUEDA_GPU_OPERATIONS=" + info.settings.gpu_operations + ", which does not ask for NCCL.";
  return " has looked for no NCCL.";
}

void put_settings(ByteWriter& out, const JobSettings& settings) {
  out.put(settings.fusion_bytes);
  out.put(settings.chunk_bytes);
  out.put_string(settings.algorithm);
  out.put_string(settings.gpu_operations);
  out.put(static_cast<uint8_t>(settings.hierarchical_allreduce));
  out.put(settings.staging_bytes);
  out.put_string(settings.cuda_ipc);
  out.put(static_cast<uint8_t>(settings.is_bitwise));
  out.put_string(settings.cpu_operations);
  out.put(settings.mpi_chunk_bytes);
  out.put(static_cast<uint8_t>(settings.group_fusion_disabled));
  out.put(static_cast<uint8_t>(settings.dynamic_process_sets));
}

JobSettings get_settings(ByteReader& in) {
  JobSettings settings;
  settings.fusion_bytes = in.get<int64_t>();
  settings.chunk_bytes = in.get<int64_t>();
  settings.algorithm = in.get_string(kMaxTextBytes);
  settings.gpu_operations = in.get_string(kMaxTextBytes);
  settings.hierarchical_allreduce = in.get<uint8_t>() != 0;
  settings.staging_bytes = in.get<int64_t>();
  settings.cuda_ipc = in.get_string(kMaxTextBytes);
  settings.is_bitwise = in.get<uint8_t>() != 0;
  settings.cpu_operations = in.get_string(kMaxTextBytes);
  settings.mpi_chunk_bytes = in.get<int64_t>();
  settings.group_fusion_disabled = in.get<uint8_t>() != 0;
  settings.dynamic_process_sets = in.get<uint8_t>() != 0;
  return settings;
}

}  // namespace

void put_addresses(ByteWriter& out, const TransportAddresses& addresses) {
  out.put_list(addresses, [](ByteWriter& to, const auto& one) {
    to.put_string(one.first);
    to.put_string(one.second);
  });
}

TransportAddresses get_addresses(ByteReader& in) {
  TransportAddresses addresses;
  const auto get_one = [](ByteReader& from) {
    std::string transport = from.get_string(kMaxTextBytes);
    return std::pair(std::move(transport), from.get_string(kMaxTextBytes));
  };
  for (auto& one : in.get_list(kMaxTransports, get_one))
    if (!addresses.insert(std::move(one)).second) in.fail();
  return addresses;
}

Bytes encode(const PeerInfo& info) {
  ByteWriter out;
  out.put_string(info.release);
  out.put(info.pid);
  out.put(info.began);
  out.put(info.pid_space);
  out.put_string(info.host);
  out.put_string(info.host_key);
  out.put(info.local_rank);
  out.put(info.local_size);
  out.put(info.size);
  put_addresses(out, info.addresses);
  out.put_string(info.shared_memory_fault);
  out.put(static_cast<uint8_t>(info.has_arena));
  out.put(info.numa_node);
  out.put(info.cuda_version);
  out.put_string(info.cuda_fault);
  out.put_string(info.mpi_device_fault);
  out.put(info.nccl.version);
  out.put_string(info.nccl.why_not);
  put_settings(out, info.settings);
  out.put_list(info.process_sets,
               [](ByteWriter& to, const std::vector<Rank>& ranks) { to.put_vector(ranks); });
  out.put_vector(info.own_sets);
  return std::move(out).take();
}

Result<PeerInfo> decode_peer_info(std::span<const std::byte> raw) {
  ByteReader in(raw);
  PeerInfo info;
  info.release = in.get_string(kMaxTextBytes);
  info.pid = in.get<int64_t>();
  info.began = in.get<int64_t>();
  info.pid_space = in.get<int64_t>();
  info.host = in.get_string(kMaxTextBytes);
  info.host_key = in.get_string(kMaxTextBytes);
  info.local_rank = in.get<Rank>();
  info.local_size = in.get<Rank>();
  info.size = in.get<Rank>();
  info.addresses = get_addresses(in);
  info.shared_memory_fault = in.get_string(kMaxTextBytes);
  info.has_arena = in.get<uint8_t>() != 0;
  info.numa_node = in.get<int32_t>();
  info.cuda_version = in.get<int32_t>();
  info.cuda_fault = in.get_string(kMaxTextBytes);
  info.mpi_device_fault = in.get_string(kMaxTextBytes);
  info.nccl.version = in.get<int32_t>();
  info.nccl.why_not = in.get_string(kMaxTextBytes);
  info.settings = get_settings(in);
  info.process_sets =
      in.get_list(kMaxGroups, [](ByteReader& from) { return from.get_vector<Rank>(kMaxRanks); });
  info.own_sets = in.get_vector<int32_t>(kMaxGroups);
  if (!in.is_ok() || !in.is_at_end()) {
    return Status(Code::kPermissionDenied,
                  "a rank published peer info that this release cannot read: all ranks must run "
                  "the same release of rueda");
  }
  return info;
}

std::string describe(Rank rank, const PeerInfo& info) {
  return rank_text(rank) + " (host " + info.host + ", pid " + std::to_string(info.pid) + ")";
}

std::string describe(Rank rank, const PeerInfo& info, const PeerInfo& reader) {
  const bool is_local = info.host_key == reader.host_key;
  if (!is_local || info.pid_space == reader.pid_space) return describe(rank, info);
  return rank_text(rank) + " (host " + info.host + ", pid " + std::to_string(info.pid) + " of its container)";
}

bool share_pids(const std::vector<PeerInfo>& all, Rank one, Rank other) {
  return are_on_one_host(all, one, other) &&
         all[static_cast<size_t>(one)].pid_space == all[static_cast<size_t>(other)].pid_space;
}

bool are_on_one_host(const std::vector<PeerInfo>& all, Rank one, Rank other) {
  return all[static_cast<size_t>(one)].host_key == all[static_cast<size_t>(other)].host_key;
}

bool is_one_host(const std::vector<PeerInfo>& all) {
  return std::ranges::all_of(all,
                             [&](const PeerInfo& info) { return info.host_key == all.front().host_key; });
}

Status check_agreement(const std::vector<PeerInfo>& all) {
  const PeerInfo& first = all.front();
  for (size_t r = 0; r < all.size(); ++r) {
    const PeerInfo& info = all[r];
    const std::string whom = rank_text(static_cast<Rank>(r));
    if (info.release != first.release) {
      return {Code::kPermissionDenied, whom + " runs rueda " + info.release + " but rank 0 runs " +
                                           first.release + "; install the same release everywhere."};
    }
    if (info.size != static_cast<Rank>(all.size())) {
      return {Code::kInvalidArgument, whom + " was told that the world has " + std::to_string(info.size) +
                                          " ranks, but this rank was told " + std::to_string(all.size()) +
                                          "; give all ranks the same RUEDA_SIZE."};
    }
    if (Status s = check_equal_settings(first.settings, info.settings, whom); !s.is_ok()) return s;
    if (info.settings.dynamic_process_sets != first.settings.dynamic_process_sets) {
      return {Code::kInvalidArgument, "rank 0 and " + whom +
                                          " disagree about RUEDA_DYNAMIC_PROCESS_SETS (or "
                                          "HOROVOD_DYNAMIC_PROCESS_SETS); set it on all ranks or on none."};
    }
  }
  return Status::ok();
}

Result<RankPlacement> place_of(Rank rank, const std::vector<PeerInfo>& all) {
  // Local ranks are told by the launcher of every rank, or derived for every rank. The two are never mixed.
  const bool is_told = std::all_of(all.begin(), all.end(),
                                   [](const PeerInfo& f) { return f.local_rank >= 0 && f.local_size > 0; });
  std::unordered_map<std::string_view, size_t> hosts;
  std::vector<std::vector<Rank>> members;  // hosts in order of first rank
  for (size_t r = 0; r < all.size(); ++r) {
    const auto [host, is_new] = hosts.try_emplace(all[r].host_key, members.size());
    if (is_new) members.emplace_back();
    members[host->second].push_back(static_cast<Rank>(r));
  }
  const auto local_rank_of = [&](size_t host, size_t index) {
    return is_told ? all[static_cast<size_t>(members[host][index])].local_rank : static_cast<Rank>(index);
  };
  RankPlacement place;
  for (size_t h = 0; h < members.size(); ++h) {
    place.is_homogeneous = place.is_homogeneous && members[h].size() == members.front().size();
    for (size_t i = 0; i < members[h].size(); ++i) {
      if (members[h][i] != rank) continue;
      place.local_rank = local_rank_of(h, i);
      place.local_size =
          is_told ? all[static_cast<size_t>(rank)].local_size : static_cast<Rank>(members[h].size());
    }
  }
  // A launcher may split one machine into several hosts, which then share local ranks.
  place.cross_size = 0;
  for (size_t h = 0; h < members.size(); ++h) {
    for (size_t i = 0; i < members[h].size(); ++i) {
      if (local_rank_of(h, i) != place.local_rank) continue;
      if (members[h][i] == rank) place.cross_rank = place.cross_size;
      ++place.cross_size;
    }
  }
  if (is_told && place.local_rank >= place.local_size) {
    return Status(Code::kInvalidArgument, "local rank " + std::to_string(place.local_rank) +
                                              " is not below local size " + std::to_string(place.local_size) +
                                              "; check RUEDA_LOCAL_RANK and "
                                              "RUEDA_LOCAL_SIZE.");
  }
  return place;
}

DeviceMpiChoice choose_device_mpi(const std::vector<PeerInfo>& all) {
  const JobSettings& settings = settings_of_job(all);
  if (settings.gpu_operations != kThroughMpi || settings.cpu_operations != "mpi") return {};
  const auto has_no_cuda = [](const PeerInfo& info) { return info.cuda_version == 0; };
  if (std::ranges::any_of(all, has_no_cuda)) return {};
  const auto with_fault =
      std::ranges::find_if_not(all, [](const PeerInfo& info) { return info.mpi_device_fault.empty(); });
  if (with_fault == all.end()) return {.is_used = true, .why_not = {}};
  return {.is_used = false,
          .why_not = with_fault->mpi_device_fault + " on " +
                     describe(static_cast<Rank>(with_fault - all.begin()), *with_fault) + "."};
}

NcclChoice choose_nccl(const std::vector<PeerInfo>& all) {
  const auto asks = [](const PeerInfo& info) { return info.nccl.version > 0 || !info.nccl.why_not.empty(); };
  const std::string& wanted = settings_of_job(all).gpu_operations;
  const bool is_asked_for = wanted.empty() || wanted == "nccl";
  if (!is_asked_for || (wanted.empty() && std::ranges::none_of(all, asks))) return {};
  const auto who = [&](size_t rank) { return describe(static_cast<Rank>(rank), all[rank]); };
  for (size_t r = 0; r < all.size(); ++r) {
    const NcclInfo& mine = all[r].nccl;
    if (mine.version == 0) return {.why_not = who(r) + why_without_nccl(all[r])};
    if (mine.version != all.front().nccl.version)
      return {.why_not = who(0) + " has NCCL " + nccl::version_text(all.front().nccl.version) + " but " +
                         who(r) + " has NCCL " + nccl::version_text(mine.version) +
                         "; install the same version everywhere."};
  }
  return {.is_used = true, .why_not = {}};
}

schedule::Topology topology_of(const std::vector<Rank>& members, const std::vector<PeerInfo>& all) {
  schedule::Topology topology;
  std::map<std::string_view, int32_t> index_of;
  for (const Rank member : members) {
    const std::string_view key = all[static_cast<size_t>(member)].host_key;
    const auto [entry, is_new] = index_of.try_emplace(key, static_cast<int32_t>(index_of.size()));
    topology.host_of.push_back(entry->second);
  }
  return topology;
}

}  // namespace rueda::runtime
