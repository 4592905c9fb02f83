#include "rueda/backend/mpi/process.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "rueda/base/handshake.h"
#include "rueda/base/keep.h"
#include "rueda/base/log.h"
#include "rueda/base/sleep.h"

namespace rueda::backend::mpi {
namespace {

constexpr Nanos kFirstPause = 20 * kMicrosecond;
constexpr Nanos kLongestPause = kMillisecond;
constexpr size_t kJobBytes = 16;

Status too_few_threads(const Library& library, ThreadLevel level, bool is_ours) {
  const std::string who = is_ours ? library.describe() + " offers only "
                                  : "the program has initialised " + library.describe() + " with ";
  return {Code::kUnsupported,
          who + std::string(name_of(level)) +
              ", but several threads of the engine call MPI, one at a time, which needs "
              "MPI_THREAD_SERIALIZED; initialise MPI "
              "with MPI_THREAD_MULTIPLE (mpi4py does so by default), or unset RUEDA_CPU_OPERATIONS."};
}

}  // namespace

Result<std::shared_ptr<Process>> Process::start(std::unique_ptr<Library> library, const GetEnv& get_env) {
  if (library->is_finalized())
    return Status(Code::kUnavailable,
                  library->describe() +
                      " has been finalised in this process and cannot be used again; call "
                      "init before MPI_Finalize.");
  const bool is_ours = !library->is_initialized();
  if (is_ours && is_sure_to_fail(*library, get_env))
    return Status(Code::kInvalidArgument, launcher_name(get_env) + " started this process, but " +
                                              library->describe() + " is another MPI; " +
                                              right_launcher(library->version(), get_env) + ".");
  const Result<ThreadLevel> level = is_ours ? library->init(ThreadLevel::kMultiple) : library->thread_level();
  if (!level.is_ok()) return level.status();
  if (level.value() < ThreadLevel::kSerialized) return too_few_threads(*library, level.value(), is_ours);
  // Open MPI reports some failures of our communicators to the handler of the world.
  if (is_ours)
    if (Status s = library->return_errors(library->world()); !s.is_ok()) return s;
  return std::shared_ptr<Process>(new Process(std::move(library), is_ours, level.value()));
}

Status Process::usable() const {
  if (!is_abandoned_) return Status::ok();
  return {
      Code::kUnavailable,
      "an earlier job of this process failed while it used " + library_->version() +
          ", and MPI can neither cancel what was under way nor go on without a rank; start the ranks again, "
          "or unset RUEDA_CPU_OPERATIONS and give no communicator."};
}

// kTimeout if the ranks did not all come in time.
Status Process::await(Request& request, Deadline deadline) {
  Nanos pause = kFirstPause;
  while (true) {
    const Result<bool> is_done = library_->test(request);
    if (!is_done.is_ok()) return is_done.status();
    if (is_done.value()) return Status::ok();
    if (deadline.is_past()) break;
    sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  abandon();
  return {Code::kTimeout,
          "not all ranks of the MPI communicator called init in time; call it on every rank "
          "of the communicator, or raise RUEDA_START_TIMEOUT."};
}

Result<Comm> Process::duplicate(Comm comm, Deadline deadline) {
  // The duplicate outlives this call if the deadline passes.
  auto copy = std::make_unique<Comm>();
  Request request;
  if (Status s = library_->idup(comm, copy.get(), request); !s.is_ok()) return s;
  if (Status s = await(request, deadline); !s.is_ok()) {
    keep_until_exit(std::move(copy));
    return s;
  }
  if (Status s = library_->return_errors(*copy); !s.is_ok()) return s;
  return *copy;
}

Result<Team> Process::twin_of(const Team& team, Deadline deadline) {
  for (const auto& [comm, twin] : twins_)
    if (comm == team.comm.handle) return twin;
  const Result<Comm> copy = duplicate(team.comm, deadline);
  if (!copy.is_ok()) return copy.status();
  Team twin = team;
  twin.comm = copy.value();
  twins_.emplace_back(team.comm.handle, twin);
  return twin;
}

Result<Team> Process::join(std::optional<Handle> communicator, Deadline deadline) {
  if (Status s = usable(); !s.is_ok()) return s;
  const Comm base = communicator ? Comm{*communicator} : library_->world();
  for (const Team& team : teams_)
    if (library_->is_congruent(base, team.comm)) return team;
  const Result<Comm> copy = duplicate(base, deadline);
  if (!copy.is_ok()) return copy.status();
  Team team{.comm = copy.value(), .rank = 0, .size = 1, .job = {}};
  const Result<int> rank = library_->rank(team.comm), size = library_->size(team.comm);
  if (!rank.is_ok()) return rank.status();
  if (!size.is_ok()) return size.status();
  team.rank = rank.value();
  team.size = size.value();
  std::array<std::byte, kJobBytes> job{};
  if (team.rank == 0) {
    const Result<Secret> made = make_secret();
    if (!made.is_ok()) return made.status();
    std::copy_n(made.value().key.begin(), std::min(kJobBytes, made.value().key.size()), job.begin());
  }
  if (Status s = broadcast(team, job, deadline); !s.is_ok()) return s;
  constexpr std::string_view kDigits = "0123456789abcdef";
  team.job = "mpi-";
  for (const std::byte byte : job) {
    team.job += kDigits[std::to_integer<size_t>(byte) >> 4];
    team.job += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  teams_.push_back(team);
  return team;
}

Status Process::broadcast(const Team& team, std::span<std::byte> bytes, Deadline deadline) {
  // If the deadline passes, MPI may still write the bytes.
  auto buffer = std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end());
  Request request;
  const Terms terms{.comm = team.comm, .type = Type::kUint8, .peer = 0};
  Status status = library_->ibcast(buffer->data(), static_cast<int>(buffer->size()), terms, request);
  if (!status.is_ok()) return status;
  status = await(request, deadline);
  if (!status.is_ok()) {
    keep_until_exit(std::move(buffer));
    return status;
  }
  std::ranges::copy(*buffer, bytes.begin());
  return Status::ok();
}

void Process::finish() {
  if (!is_ours_ || is_abandoned_ || library_->is_finalized()) return;
  if (const Status status = library_->finalize(); !status.is_ok()) RUEDA_LOG(kInfo, status.why);
}

}  // namespace rueda::backend::mpi
