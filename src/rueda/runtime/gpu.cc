#include "rueda/runtime/gpu.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rueda/backend/device/staged.h"
#include "rueda/backend/mpi/device_mpi.h"
#include "rueda/base/gpu_operations.h"
#include "rueda/base/log.h"
#include "rueda/runtime/nccl.h"

namespace rueda::runtime {
namespace {

// A stream calls this perhaps after the epoch has ended, so it has a descriptor of its own.
std::function<void()> ringer(const UniqueFd& doorbell) {
  const auto mine = std::make_shared<UniqueFd>(fcntl(doorbell.get(), F_DUPFD_CLOEXEC, 0));
  return [mine] { (void)eventfd_write(mine->get(), 1); };
}

backend::StagedOptions staged_options(const Session& session) {
  return {.section_bytes = static_cast<size_t>(session.settings().staging_bytes)};
}

std::shared_ptr<backend::DeviceCopiers> make_copiers(const Session& session) {
  return std::make_shared<backend::DeviceCopiers>(session.devices, ringer(session.doorbell),
                                                  staged_options(session).section_bytes);
}

// The ranks of one host, by the settings of the job.
backend::PeerOptions peer_options(const Session& session, bool warns_of_shared_gpu) {
  using Use = backend::PeerOptions::Use;
  const std::vector<PeerInfo>* all = session.all.get();
  const JobSettings& settings = session.settings();
  Use use = settings.cuda_ipc == "on"    ? Use::kAlways
            : settings.cuda_ipc == "off" ? Use::kNever
                                         : Use::kLargeCalls;
  // Then the sums are those of the algorithm, or of MPI.
  if (!settings.algorithm.empty() || settings.cpu_operations == "mpi") use = Use::kNever;
  const auto is_one_host = [all](const Group& group) {
    const std::string& host = (*all)[static_cast<size_t>(group.members.front())].host_key;
    return std::ranges::all_of(group.members,
                               [&](Rank rank) { return (*all)[static_cast<size_t>(rank)].host_key == host; });
  };
  return {.use = use,
          .is_one_host = is_one_host,
          .warns_of_shared_gpu = warns_of_shared_gpu,
          .section_bytes = staged_options(session).section_bytes,
          .local_rank = session.place.local_rank,
          .wake = ringer(session.doorbell)};
}

std::unique_ptr<backend::Backend> stage(const Session& session, std::unique_ptr<backend::Backend> host,
                                        std::shared_ptr<backend::DeviceCopiers> copiers,
                                        bool warns_of_shared_gpu) {
  return std::make_unique<backend::StagedBackend>(std::move(host), session.devices,
                                                  peer_options(session, warns_of_shared_gpu),
                                                  std::move(copiers), staged_options(session));
}

Status add_nccl(Session& session, SessionBackends& backends) {
  const NcclChoice choice = choose_nccl(*session.all);
  if (!choice.is_used) return {Code::kUnavailable, choice.why_not};
  std::unique_ptr<backend::Backend> host = backends.make_for_host_sync();
  if (host != nullptr)
    host = stage(session, std::move(host), make_copiers(session), false);  // NCCL's backend warns itself
  backends.for_devices.push_back(make_nccl_backend(session, std::move(host)));
  return Status::ok();
}

// Every backend for host memory now takes device memory as well.
Status add_staged(Session& session, SessionBackends& backends) {
  const auto copiers = make_copiers(session);
  const bool is_alone = backends.for_devices.empty();
  for (std::unique_ptr<backend::Backend>& each : backends.for_hosts)
    each = stage(session, std::move(each), copiers, is_alone);
  return Status::ok();
}

// One way to run calls in device memory. A failure is the same on every rank: it follows from peer info.
struct GpuOperations {
  std::string_view name;
  Status (*add)(Session& session, SessionBackends& backends);
};

constexpr std::array<GpuOperations, kGpuOperations.size()> kTable = {
    {{"nccl", add_nccl}, {"staged", add_staged}}};
static_assert(std::ranges::equal(kTable, kGpuOperations, {}, &GpuOperations::name));

}  // namespace

Result<std::shared_ptr<const cuda::Driver>> load_cuda(const Config& config) {
  return config.cuda_library.empty() ? cuda::Driver::load() : cuda::Driver::load(config.cuda_library);
}

Status find_cuda(Session& session) {
  const std::string& library = session.config.cuda_library;
  Result<std::shared_ptr<const cuda::Driver>> driver = load_cuda(session.config);
  if (driver.is_ok()) {
    session.devices = std::make_shared<cuda::Devices>(std::move(driver).value());
    return Status::ok();
  }
  const Status& why = driver.status();
  if (!library.empty()) return {why.code, "RUEDA_CUDA_LIBRARY=" + library + " is refused: " + why.why};
  if (why.code == Code::kUnsupported) session.cuda_fault = why.why;
  return Status::ok();
}

std::string why_no_devices(const std::vector<PeerInfo>& all) {
  const auto has_cuda = [](const PeerInfo& info) { return info.cuda_version > 0; };
  const auto knows_cuda = [&](const PeerInfo& info) { return has_cuda(info) || !info.cuda_fault.empty(); };
  if (std::ranges::none_of(all, knows_cuda)) return {};
  const auto without = std::ranges::find_if_not(all, has_cuda);
  if (without == all.end()) return {};
  const std::string who = describe(static_cast<Rank>(without - all.begin()), *without);
  return who +
         " cannot use CUDA: " + (without->cuda_fault.empty() ? "it has no CUDA driver" : without->cuda_fault);
}

namespace {

// Calls that MPI cannot be given are staged. Says which way the others go.
void add_device_mpi(Session& session, SessionBackends& backends) {
  const DeviceMpiChoice choice = choose_device_mpi(*session.all);
  if (choice.is_used && session.mpi && session.mpi->device_team) {
    backends.for_devices.push_back(std::make_unique<backend::mpi::DeviceMpiBackend>(
        backend::mpi::DeviceMpiOptions{.process = session.mpi->process,
                                       .team = *session.mpi->device_team,
                                       .devices = session.devices,
                                       .local_rank = session.place.local_rank}));
    if (session.me == 0)
      RUEDA_LOG_ONCE(kInfo, "GPU tensors go to MPI where they are: " +
                                session.mpi->process->library().describe() + " takes CUDA memory.");
  } else if (session.me == 0 && !choice.why_not.empty()) {
    RUEDA_LOG_ONCE(kWarning, "GPU tensors go to MPI by way of host memory: " + choice.why_not);
  }
}

Status add_those_of_table(Session& session, SessionBackends& backends) {
  const std::vector<PeerInfo>& all = *session.all;
  if (std::ranges::any_of(all, [](const PeerInfo& info) { return info.cuda_version == 0; }))
    return Status::ok();
  std::string wanted = settings_of_job(all).gpu_operations;
  if (wanted == kThroughMpi) {
    if (settings_of_job(all).cpu_operations != "mpi")
      return {
          Code::kInvalidArgument,
          "RUEDA_GPU_OPERATIONS=mpi cannot be used: GPU tensors go to MPI by way of host memory, and host "
          "memory does not go through MPI in this job; set RUEDA_CPU_OPERATIONS=mpi as well."};
    add_device_mpi(session, backends);
    wanted = "staged";
  }
  bool is_reached = wanted.empty();
  for (const GpuOperations& row : kTable) {
    const bool is_wanted = row.name == wanted;
    is_reached = is_reached || is_wanted;
    if (!is_reached) continue;
    const Status added = row.add(session, backends);
    if (added.is_ok()) continue;
    if (is_wanted) return {added.code, "RUEDA_GPU_OPERATIONS=" + wanted + " cannot be used: " + added.why};
    const std::string sentence = "GPU tensors do not go through " + std::string(row.name) + ": " + added.why;
    if (session.me == 0 && !added.why.empty()) RUEDA_LOG_ONCE(kWarning, sentence);
  }
  return Status::ok();
}

void say_if_not_hierarchical(const Session& session, const SessionBackends& backends) {
  const bool is_asked_for = session.settings().hierarchical_allreduce;
  const bool has_nccl = std::ranges::any_of(
      backends.for_devices, [](const auto& backend) { return backend->gpu_operations() == "nccl"; });
  if (session.me == 0 && is_asked_for && !has_nccl)
    RUEDA_LOG_ONCE(
        kWarning,
        "RUEDA_HIERARCHICAL_ALLREDUCE has no effect in this job, because NCCL is not used; elsewhere "
        "measured costs choose how hosts are used, and RUEDA_ALGORITHM=two_level forces two levels.");
}

}  // namespace

Status add_gpu_backends(Session& session, SessionBackends& backends) {
  const Status added = add_those_of_table(session, backends);
  if (added.is_ok()) say_if_not_hierarchical(session, backends);
  return added;
}

}  // namespace rueda::runtime
