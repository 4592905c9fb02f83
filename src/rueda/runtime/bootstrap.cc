#include "rueda/runtime/bootstrap.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>

#include "rueda/base/config_table.h"
#include "rueda/base/descriptors.h"
#include "rueda/base/log.h"
#include "rueda/base/process.h"
#include "rueda/base/release.h"
#include "rueda/runtime/backends.h"
#include "rueda/runtime/calibrate.h"
#include "rueda/runtime/gpu.h"
#include "rueda/runtime/local_ranks.h"
#include "rueda/runtime/mpi_rendezvous.h"
#include "rueda/runtime/nccl.h"
#include "rueda/runtime/static_sets.h"
#include "rueda/runtime/transports.h"
#include "rueda/status/job_news.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kLeavingWait = kSecond;  // how long the rank that serves the store stays after a failure

void apply_log_settings(const Config& config, Rank rank) {
  const auto* const level = std::ranges::find(kLogLevelNames, config.log_level);
  if (level != kLogLevelNames.end()) set_log_level(static_cast<LogLevel>(level - kLogLevelNames.begin()));
  set_log_hide_time(config.log_hide_time);
  set_log_rank(rank);
}

// Ranks with equal keys share memory and a network stack. The host name may split a machine further.
std::string host_key(const std::string& host) {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network {};
  const bool is_known = stat("/proc/self/ns/net", &network) == 0;
  return host + "|" + boot_id + "|" + (is_known ? std::to_string(network.st_ino) : "");
}

// Empty if the MPI of this process can be given CUDA memory, or if there is none of the two.
std::string mpi_device_fault(const std::optional<MpiWorld>& mpi, const Session& session) {
  if (!mpi || session.devices == nullptr) return {};
  backend::mpi::Library& library = mpi->process->library();
  if (!library.takes_cuda_memory()) return library.describe() + " does not say that it takes CUDA memory";
  if (mpi->process->thread_level() == backend::mpi::ThreadLevel::kMultiple) return {};
  return library.describe() + " takes CUDA memory, but grants no MPI_THREAD_MULTIPLE";
}

JobSettings settings_of(const Config& config) {
  return {.fusion_bytes = config.fusion_bytes,
          .chunk_bytes = config.chunk_bytes,
          .algorithm = config.algorithm,
          .gpu_operations = config.gpu_operations,
          .hierarchical_allreduce = config.hierarchical_allreduce,
          .staging_bytes = config.staging_bytes,
          .cuda_ipc = config.cuda_ipc,
          .is_bitwise = config.determinism == "bitwise",
          .cpu_operations = config.cpu_operations,
          .mpi_chunk_bytes = config.mpi_chunk_bytes,
          .group_fusion_disabled = config.group_fusion_disabled,
          .dynamic_process_sets = config.dynamic_process_sets};
}

PeerInfo own_info(const Session& session, const store::World& world, const InitOptions& options) {
  PeerInfo info;
  info.release = kRelease;
  info.pid = getpid();
  info.began = process_began();
  info.pid_space = pid_space();
  info.host = world.host;
  info.host_key = host_key(world.host);
  info.local_rank = world.local_rank;
  info.local_size = world.local_size;
  info.size = world.size;
  info.cuda_version = session.devices != nullptr ? session.devices->driver().version : 0;
  info.cuda_fault = session.cuda_fault;
  info.nccl.version = session.nccl != nullptr ? session.nccl->version() : 0;
  info.nccl.why_not = session.nccl_fault;
  info.settings = settings_of(session.config);
  info.process_sets = options.process_sets;
  info.own_sets = options.own_sets;
  return info;
}

Result<Session> make_session(const Config& config, const store::World& world, Epoch epoch) {
  Session session;
  session.config = config;
  session.me = world.rank;
  session.epoch = epoch;
  session.all = std::make_unique<std::vector<PeerInfo>>();
  session.launcher = world.launcher;
  session.launcher_reason = world.reason;
  session.doorbell = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!session.doorbell.is_open()) return out_of_descriptors(errno);
  if (Status s = find_cuda(session); !s.is_ok()) return s;
  find_nccl(session);
  return session;
}

// What one init starts from.
struct Start {
  const Config& config;
  const store::World& world;
  const InitOptions& options;
  const std::optional<MpiWorld>& mpi;
  Deadline deadline;
  Nanos began;
};

// Returns when all ranks are connected as Hierarchy says.
Status connect_ranks(InitExchange& exchange, Deadline deadline, Session& session) {
  ConnectWait wait = exchange.begin_connecting();
  Links& links = *session.links;
  const auto interrupted = [&] {
    const std::string sentence = wait.note(links.unanswered(), monotonic_now());
    if (!sentence.empty()) RUEDA_LOG(kWarning, sentence);
    // A launcher knows more of an end than that.
    if (Status s = exchange.interrupted(); !s.is_ok()) return s;
    return check_processes(links.missing_peers(), session.me, *session.all);
  };
  const Status connected = links.connect_all(deadline, interrupted);
  if (!connected.is_ok()) return wait.explain(connected, links.unanswered());
  const Result<MeasuredLinks> costs = calibrate(links, session.me, *session.all, deadline, interrupted);
  if (!costs.is_ok()) return wait.explain(costs.status(), "");
  session.measured = costs.value();
  return Status::ok();
}

// Fills in the session. After a failure, session and transports keep the channels up until the other ranks
// have been told.
Status connect_world(const Start& start, InitExchange& exchange, const Secret& secret,
                     OpenTransports& transports, Session& session) {
  const auto& [config, world, options, mpi, deadline, began] = start;
  const transport::Identity identity{.job = world.job,
                                     .epoch = session.epoch,
                                     .rank = world.rank,
                                     .size = world.size,
                                     .secret = secret,
                                     .release = kRelease};
  Result<SharedWithHost> shared = SharedWithHost();
  if (allows_shared_memory(config))
    shared = SharedWithHost::create(options.arena, session.doorbell.get(), world.size);
  Result<OpenTransports> opened = open_transports(config, world, identity, shared.status());
  if (!opened.is_ok()) return opened.status();
  transports = std::move(opened).value();
  session.listen_host = transports.listen_host;
  PeerInfo mine = own_info(session, world, options);
  mine.addresses = transports.addresses();
  if (shared.is_ok()) shared.value().describe(mine);
  mine.shared_memory_fault = transports.shared_memory_fault;
  mine.mpi_device_fault = mpi_device_fault(mpi, session);
  if (Status s = exchange.publish(mine); !s.is_ok()) return s;
  if (Status s = exchange.gather(*session.all); !s.is_ok()) return s;
  if (Status s = check_agreement(*session.all); !s.is_ok()) return s;
  Result<std::vector<std::vector<Rank>>> sets = agreed_sets(*session.all);
  if (!sets.is_ok()) return sets.status();
  session.process_sets = std::move(sets).value();
  Result<RankPlacement> place = place_of(world.rank, *session.all);
  if (!place.is_ok()) return place.status();
  session.place = place.value();

  session.links = std::make_unique<Links>(std::move(transports.list), world.rank, *session.all);
  if (shared.is_ok())
    if (Status s = shared.value().offer(*session.links, session.me, *session.all); !s.is_ok()) return s;
  if (Status s = connect_ranks(exchange, deadline, session); !s.is_ok()) return s;
  Result<std::shared_ptr<backend::LocalHost>> host = std::shared_ptr<backend::LocalHost>();
  if (shared.is_ok()) host = std::move(shared).value().join(*session.links, session.me, *session.all);
  if (!host.is_ok()) return host.status();
  session.mpi = mpi;
  if (choose_device_mpi(*session.all).is_used) {
    Result<backend::mpi::Team> twin = mpi->process->twin_of(mpi->team, deadline);
    if (!twin.is_ok()) return twin.status();
    session.mpi->device_team = std::move(twin).value();
  }
  return attach_backends(session, std::move(host).value());
}

// A rank that is missing may be one that the store has refused. Only its secret would prove it.
Status with_refused_caller(Status why, RendezvousPoint& point) {
  if (why.code != Code::kTimeout || point.rendezvous().server == nullptr) return why;
  const std::string refusal = point.rendezvous().server->last_refusal();
  if (!refusal.empty()) why.why += " The store has refused a caller meanwhile: " + refusal;
  return why;
}

// The store's process is that of rank 0: nobody else serves one over the network.
bool does_rank_0_serve(const store::World& world) {
  return !world.is_store_served && !world.is_elastic && !world.url.starts_with("file:");
}

// One init exchange. Empty if another one has superseded it.
Result<std::optional<Session>> meet(const Start& start, RendezvousPoint& point) {
  const store::World& world = start.world;
  const LostRank* const lost = point.loss(world);
  const bool awaits_lost = lost != nullptr && lost->rank == 0;
  const Deadline deadline = awaits_lost
                                ? Deadline::at(std::min(start.deadline.when(), monotonic_now() + kReturnTime))
                                : start.deadline;
  const Result<Epoch> number = point.next_number(deadline);
  if (!number.is_ok() && store::is_set(point.interruption())) {
    point.refuse(number.status());
    return number.status();
  }
  if (!number.is_ok()) return awaits_lost ? not_back(*lost, kReturnTime) : number.status();
  InitExchange exchange(*point.rendezvous().store, number.value(), world.rank, world.size, start.deadline,
                        lost);
  exchange.watch(point.interruption());
  const store::StoreServer* const server = point.rendezvous().server.get();
  if (server != nullptr && !world.is_elastic) exchange.heed(*server, start.began);
  if (does_rank_0_serve(world) && server == nullptr) exchange.depend_on_rank_0();
  const std::string& run_dir = point.rendezvous().run_dir;
  if (!run_dir.empty() && world.rank != 0 && !world.is_elastic)
    exchange.watch_rank_0([&run_dir] { return store::is_run_over(run_dir); });
  exchange.tell(point.wait());
  // Freed after a failure, so that a rank that has run out of descriptors can still report it through
  // a file store.
  std::array<UniqueFd, 4> reserve;
  for (UniqueFd& fd : reserve) fd = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  OpenTransports transports;
  Result<Session> session = make_session(start.config, world, number.value());
  const Status connected =
      session.is_ok() ? connect_world(start, exchange, point.rendezvous().secret, transports, session.value())
                      : session.status();
  if (connected.is_ok()) {
    if (world.rank == 0) point.close_exchange();
    return std::optional<Session>(std::move(session).value());
  }
  if (exchange.is_superseded()) return std::optional<Session>();
  reserve = {};
  const Status cause = exchange.settle(with_refused_caller(connected, point));
  if (point.rendezvous().server != nullptr) exchange.await_readers(kLeavingWait);
  return cause;
}

// Ranks that wait for rank 0 say so: only a wait for the others knows more, in InitExchange.
class WhileWaiting {
 public:
  WhileWaiting(RendezvousPoint& point, const store::World& world)
      : point_(point), given_(point.interruption()) {
    point.wait().begin(world.rank, world.size, world.url.empty() ? world.seed_host : world.url,
                       world.is_store_served, monotonic_now());
    point.watch([given = given_, &wait = point.wait()] {
      wait.say(monotonic_now());
      return store::is_set(given);
    });
  }
  ~WhileWaiting() {
    point_.wait().end();
    point_.watch(given_);
  }
  WhileWaiting(const WhileWaiting&) = delete;
  WhileWaiting& operator=(const WhileWaiting&) = delete;

 private:
  RendezvousPoint& point_;
  store::Interrupted given_;
};

// What was found and chosen, in one line for the log.
std::string summary_of(const Session& session) {
  const RankPlacement& place = session.place;
  std::string text = "rank " + std::to_string(session.me) + " of " + std::to_string(session.size()) +
                     ", local rank " + std::to_string(place.local_rank) + " of " +
                     std::to_string(place.local_size) + " on host " +
                     (*session.all)[static_cast<size_t>(session.me)].host + "; launcher " + session.launcher +
                     " (" + session.launcher_reason + ")";
  for (Rank peer = 0; session.links && peer < session.size() && peer < 8; ++peer) {
    if (peer == session.me) continue;
    text += ", rank " + std::to_string(peer) + " over " + std::string(session.links->transport_name(peer));
  }
  return text;
}

// By one rank: what it says holds for all.
void warn_for_all(const Session& session, const store::GetEnv& get_env, RendezvousPoint& point) {
  std::vector<std::string> sentences = ignored_settings(get_env);
  sentences.push_back(warn_of_crowded_hosts(*session.all));
  sentences.push_back(warn_of_unshared_memory(*session.all));
  for (const std::string& sentence : sentences)
    if (!sentence.empty() && point.is_news(sentence)) RUEDA_LOG(kWarning, sentence);
}

Status check_options(InitOptions& options, const store::World& world) {
  if (options.expected_size != 0 && options.expected_size != world.size) {
    return {Code::kInvalidArgument, "init expected a world of " + std::to_string(options.expected_size) +
                                        " ranks but found " + std::to_string(world.size) + " (" +
                                        world.launcher + ": " + world.reason + ")."};
  }
  for (std::vector<Rank>& ranks : options.process_sets) std::sort(ranks.begin(), ranks.end());
  return check_process_sets(options.process_sets, world.size);
}

}  // namespace

Result<Session> bootstrap(RendezvousPoint& point, InitOptions options, const store::GetEnv& get_env) {
  const Nanos began = monotonic_now();
  point.watch(options.is_interrupted);
  Result<store::World> detected = store::detect_world(get_env, store::read_ancestry());
  if (!detected.is_ok()) return detected.status();
  const Result<Config> parsed = parse_config(get_env);
  const Config config = parsed.is_ok() ? parsed.value() : Config{};
  const Deadline deadline = Deadline::after(nanos(config.start_timeout_s, kSecond));
  std::optional<MpiWorld> mpi;
  if (config.cpu_operations == "mpi" || options.communicator) {
    Result<MpiRendezvous> met = rendezvous_in_mpi(point, std::move(detected).value(), config,
                                                  options.communicator, MpiStart{get_env, deadline});
    if (!met.is_ok()) return met.status();
    detected = std::move(met.value().world);
    mpi = std::move(met.value().mpi);
  }
  const Result<store::World> completed = point.complete(std::move(detected).value(), deadline);
  if (!completed.is_ok()) return completed.status();
  const store::World world = options.seat ? options.seat(completed.value()) : completed.value();
  if (world.is_elastic) point.enter_view(world.view);
  apply_log_settings(config, world.rank);
  if (!world.warning.empty()) RUEDA_LOG(kWarning, world.warning);

  Status refused = parsed.is_ok() ? check_options(options, world) : parsed.status();
  if (refused.is_ok()) refused = check_algorithm_settings(config);
  const std::string too_few = allow_descriptors(descriptors_for(world.size, world.local_size));
  const bool speaks_for_its_host = world.local_rank <= 0;  // the limits of a host's ranks are equal
  if (!too_few.empty() && speaks_for_its_host) RUEDA_LOG(kWarning, too_few);
  if (world.size == 1) {
    if (!refused.is_ok()) return refused;
    Result<Session> made = make_session(config, world, point.next_alone());
    if (!made.is_ok()) return made;
    Session& session = made.value();
    session.all->push_back(own_info(session, world, options));
    session.process_sets = agreed_sets(*session.all).value();
    session.place.local_rank = std::max(world.local_rank, 0);
    session.mpi = std::move(mpi);
    if (Status s = attach_backends(session, nullptr); !s.is_ok()) return s;
    RUEDA_LOG(kInfo, summary_of(session));
    return made;
  }
  const WhileWaiting waiting(point, world);
  if (Status s = point.open(world, config.interface, deadline); !s.is_ok())
    return refused.is_ok() ? s : refused;
  if (!refused.is_ok()) {
    point.refuse(refused);
    return refused;
  }
  const Start start{config, world, options, mpi, deadline, began};
  Result<std::optional<Session>> met = meet(start, point);
  while (met.is_ok() && !met.value()) met = meet(start, point);
  if (!met.is_ok()) {
    point.note_failure(met.status());
    return met.status();
  }
  point.forget_loss();
  point.rendezvous().store->disconnect();  // or the process that serves it would hold a socket for each rank
  Session session = *std::move(met).value();
  if (const char* news = get_env(status::kNewsVariable)) session.news_file = news;
  RUEDA_LOG(kInfo, summary_of(session));
  if (world.rank == 0) warn_for_all(session, get_env, point);
  return session;
}

}  // namespace rueda::runtime
