#include "rueda/runtime/mpi_rendezvous.h"

#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "rueda/backend/mpi/init_watch.h"
#include "rueda/base/bytes.h"
#include "rueda/base/log.h"
#include "rueda/store/launcher_space.h"

namespace rueda::runtime {
namespace {

using backend::mpi::Process;
using backend::mpi::Team;

constexpr size_t kSpaceBytes = 4096;  // two short values and their names
constexpr size_t kMaxText = 1024;
constexpr size_t kMostValues = 16;
// A rank that meets the others without MPI says first who has not come.
constexpr Nanos kLastWord = 2 * kSecond;

// A key-value space of which only rank 0 fills in values: a fence is a broadcast.
class MpiSpace final : public store::LauncherSpace {
 public:
  MpiSpace(std::shared_ptr<Process> process, Team team)
      : process_(std::move(process)), team_(std::move(team)) {
    facts_.rank = team_.rank;
    facts_.size = team_.size;
    facts_.job = team_.job;
  }

  [[nodiscard]] const store::LauncherFacts& facts() const override { return facts_; }

  Status put(const std::string& key, const std::string& value, Deadline) override {
    values_[key] = value;
    return Status::ok();
  }

  Status fence(Deadline deadline) override {
    ByteWriter out;
    out.put_list(values_, [](ByteWriter& to, const auto& one) {
      to.put_string(one.first);
      to.put_string(one.second);
    });
    Bytes raw = std::move(out).take();
    RUEDA_CHECK(raw.size() <= kSpaceBytes, "the values of a rendezvous are short");
    raw.resize(kSpaceBytes);
    if (Status s = process_->broadcast(team_, raw, deadline); !s.is_ok()) return s;
    if (team_.rank == 0) return Status::ok();
    ByteReader in(raw);
    for (auto& [key, value] : in.get_list(kMostValues, [](ByteReader& from) {
           std::string key = from.get_string(kMaxText);
           return std::pair(std::move(key), from.get_string(kMaxText));
         }))
      values_[key] = std::move(value);
    if (in.is_ok()) return Status::ok();
    return {Code::kPermissionDenied,
            "rank 0 sent values through MPI that this release cannot read: all ranks "
            "must run the same release of rueda."};
  }

  Result<std::string> get(const std::string& key, Rank, Deadline) override {
    const auto at = values_.find(key);
    if (at != values_.end()) return at->second;
    return Status(Code::kUnavailable, "rank 0 put no '" + key + "' into the space of MPI");
  }

  Status finish(Deadline) override { return Status::ok(); }  // a failed init may be repeated

 private:
  std::shared_ptr<Process> process_;
  Team team_;
  store::LauncherFacts facts_;
  std::map<std::string, std::string> values_;
};

std::string rank_of(Rank rank, Rank size) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size);
}

Status other_mpi(const store::World& world, const Process& process, const Team& team,
                 const store::GetEnv& get_env) {
  std::string launcher = backend::mpi::launcher_name(get_env);
  if (launcher.empty()) launcher = "the launcher (" + world.launcher + ")";
  return {Code::kInvalidArgument,
          launcher + " started this process as " + rank_of(world.rank, world.size) + ", but " +
              process.library().describe() + " sees " + rank_of(team.rank, team.size) +
              ", so the two do not belong together; " +
              backend::mpi::right_launcher(process.library().version(), get_env) + "."};
}

}  // namespace

Result<MpiRendezvous> rendezvous_in_mpi(RendezvousPoint& point, store::World detected, const Config& config,
                                        std::optional<uint64_t> communicator, const MpiStart& start) {
  if (point.mpi() == nullptr) {
    auto library = backend::mpi::find_library(config.mpi_library, start.get_env);
    if (!library.is_ok()) return library.status();
    const backend::mpi::InitWatch watch(
        Deadline::at(start.deadline.when() + kLastWord),
        [name = library.value()->describe()] { backend::mpi::end_late_init(name); });
    Result<std::shared_ptr<Process>> started = Process::start(std::move(library).value(), start.get_env);
    if (!started.is_ok()) return started.status();
    point.mpi() = std::move(started).value();
  }
  const std::shared_ptr<Process>& process = point.mpi();
  const Result<Team> joined = process->join(communicator, start.deadline);
  if (!joined.is_ok()) return joined.status();
  const Team& team = joined.value();
  store::World world = std::move(detected);
  const bool is_told = world.rank >= 0 && world.size >= 0 && world.launcher != "single";
  const bool is_same = world.rank == team.rank && world.size == team.size;
  if (!communicator && is_told && !is_same) return other_mpi(world, *process, team, start.get_env);
  if (!is_same) world.local_rank = world.local_size = -1;
  if (communicator) world.reason = "init was given an MPI communicator";
  if (!communicator && !is_told) world.launcher = "mpi";
  if (!communicator && !is_told) world.reason = process->library().version() + " says so";
  world.rank = team.rank;
  world.size = team.size;
  world.job = team.job;
  world.url.clear();
  world.is_store_served = false;
  world.method = team.size == 1 ? store::World::Method::kNone : store::World::Method::kGiven;
  if (team.size == 1) world.local_rank = 0;
  if (team.size == 1) world.local_size = 1;
  world.space = std::make_shared<MpiSpace>(process, team);
  if (process->thread_level() != backend::mpi::ThreadLevel::kMultiple && !process->was_initialized_here())
    RUEDA_LOG(kWarning,
              "the program has initialised MPI with MPI_THREAD_SERIALIZED, and rueda calls MPI from its own "
              "thread: the program must not call MPI while an operation of rueda is in flight.");
  return MpiRendezvous{std::move(world), {process, team}};
}

}  // namespace rueda::runtime
