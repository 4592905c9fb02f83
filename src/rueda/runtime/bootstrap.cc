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

#include "rueda/base/config.h"
#include "rueda/base/descriptors.h"
#include "rueda/base/log.h"
#include "rueda/base/release.h"
#include "rueda/runtime/backends.h"
#include "rueda/runtime/calibrate.h"
#include "rueda/runtime/local_ranks.h"
#include "rueda/transport/shm/shm.h"
#include "rueda/transport/tcp/tcp.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kFarewellWait = kSecond;  // of the rank that serves the store, after a failure

void apply_log_settings(const Config& config, Rank rank) {
  const auto* const level = std::ranges::find(kLogLevelNames, config.log_level);
  if (level != kLogLevelNames.end()) set_log_level(static_cast<LogLevel>(level - kLogLevelNames.begin()));
  set_log_hide_time(config.log_hide_time);
  set_log_rank(rank);
}

bool allows(const Config& config, std::string_view transport) {
  std::string_view rest = config.transports;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == transport) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

// Ranks with equal keys share memory and a network stack; a launcher's host name splits them further.
std::string host_key(const std::string& host) {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network {};
  const bool is_known = stat("/proc/self/ns/net", &network) == 0;
  return host + "|" + boot_id + "|" + (is_known ? std::to_string(network.st_ino) : "");
}

struct Wires {
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::string tcp_address, shm_address;
  transport::ShmTransport* shm = nullptr;  // one of transports, if allowed
};

Result<Wires> open_wires(const Config& config, const store::World& world, const transport::Identity& identity,
                         const SharedWithHost& shared) {
  Wires wires;
  if (allows(config, "shm")) {
    Result<std::unique_ptr<transport::ShmTransport>> shm =
        transport::make_shm({.identity = identity,
                             .ring_bytes = static_cast<size_t>(config.shm_ring_bytes),
                             .shared = shared.descriptors()});
    if (!shm.is_ok()) return shm.status();
    wires.shm_address = shm.value()->address();
    wires.shm = shm.value().get();
    wires.transports.push_back(std::move(shm).value());
  }
  if (allows(config, "tcp")) {
    const bool is_local = world.local_size == world.size;
    const Result<std::string> address =
        store::choose_address(config.interface, is_local ? "127.0.0.1" : store::meeting_host(world));
    if (!address.is_ok()) return address.status();
    transport::TcpOptions options;
    options.identity = identity;
    options.bind_host = address.value();
    options.peer_timeout = static_cast<Nanos>(config.peer_timeout_s * static_cast<double>(kSecond));
    Result<std::unique_ptr<transport::Transport>> tcp = transport::make_tcp(std::move(options));
    if (!tcp.is_ok()) return tcp.status();
    wires.tcp_address = tcp.value()->address();
    wires.transports.push_back(std::move(tcp).value());
  }
  return wires;
}

Facts own_facts(const Config& config, const store::World& world, const InitOptions& options) {
  Facts facts;
  facts.release = kRelease;
  facts.pid = getpid();
  facts.host = world.host;
  facts.host_key = host_key(world.host);
  facts.local_rank = world.local_rank;
  facts.local_size = world.local_size;
  facts.size = world.size;
  facts.fusion_bytes = config.fusion_bytes;
  facts.chunk_bytes = config.chunk_bytes;
  facts.algorithm = config.algorithm;
  facts.is_bitwise = config.determinism == "bitwise";
  facts.group_fusion_disabled = config.group_fusion_disabled;
  facts.dynamic_process_sets = config.dynamic_process_sets;
  facts.process_sets = options.process_sets;
  return facts;
}

Result<Session> make_session(const Config& config, const store::World& world, Epoch epoch) {
  Session session;
  session.config = config;
  session.me = world.rank;
  session.epoch = epoch;
  session.all = std::make_unique<std::vector<Facts>>();
  session.launcher = world.launcher;
  session.launcher_reason = world.reason;
  session.bell = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!session.bell.is_open()) return out_of_descriptors(errno);
  return session;
}

// What one init goes by.
struct Start {
  const Config& config;
  const store::World& world;
  const InitOptions& options;
  Deadline deadline;
};

// Fills in the session. After a failure session and wires keep the lanes up, until it has been told.
Status connect_world(const Start& start, Meeting& meeting, const Secret& secret, Wires& wires,
                     Session& session) {
  const auto& [config, world, options, deadline] = start;
  const transport::Identity identity{.job = world.job,
                                     .epoch = session.epoch,
                                     .rank = world.rank,
                                     .size = world.size,
                                     .secret = secret,
                                     .release = kRelease};
  Result<SharedWithHost> shared = SharedWithHost::create(options.arena, session.bell.get());
  if (!shared.is_ok()) return shared.status();
  Result<Wires> opened = open_wires(config, world, identity, shared.value());
  if (!opened.is_ok()) return opened.status();
  wires = std::move(opened).value();
  Facts mine = own_facts(config, world, options);
  mine.tcp_address = wires.tcp_address;
  mine.shm_address = wires.shm_address;
  if (Status s = meeting.publish(mine); !s.is_ok()) return s;
  if (Status s = meeting.gather(*session.all); !s.is_ok()) return s;
  if (Status s = check_agreement(*session.all); !s.is_ok()) return s;
  Result<Place> place = place_of(world.rank, *session.all);
  if (!place.is_ok()) return place.status();
  session.place = place.value();

  const auto interrupted = [&meeting] { return meeting.interrupted(); };
  session.links = std::make_unique<Links>(std::move(wires.transports), world.rank, *session.all);
  if (Status s = session.links->connect_all(deadline, interrupted); !s.is_ok()) return s;
  const Result<MeasuredLinks> costs =
      calibrate(*session.links, world.rank, *session.all, deadline, interrupted);
  if (!costs.is_ok()) return costs.status();
  session.measured = costs.value();
  std::shared_ptr<backend::LocalHost> host;
  if (wires.shm != nullptr) {
    auto joined = std::move(shared).value().join(*wires.shm, session.me, *session.all);
    if (!joined.is_ok()) return joined.status();
    host = std::move(joined).value();
  }
  attach_backends(session, std::move(host));
  return Status::ok();
}

// One meeting. An empty result: it was superseded by another.
Result<std::optional<Session>> meet(const Start& start, MeetingPlace& place) {
  const store::World& world = start.world;
  const LostRank* const lost = place.loss(world);
  const bool awaits_lost = lost != nullptr && lost->rank == 0;
  const Deadline deadline = awaits_lost
                                ? Deadline::at(std::min(start.deadline.when(), monotonic_now() + kReturnTime))
                                : start.deadline;
  const Result<Epoch> number = place.next_number(deadline);
  if (!number.is_ok()) return awaits_lost ? not_back(*lost, kReturnTime) : number.status();
  Meeting meeting(*place.rendezvous().store, number.value(), world.rank, world.size, start.deadline, lost);
  // So that a rank that runs out of descriptors can still tell it through a store of files.
  std::array<UniqueFd, 4> reserve;
  for (UniqueFd& fd : reserve) fd = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Wires wires;
  Result<Session> session = make_session(start.config, world, number.value());
  const Status connected =
      session.is_ok() ? connect_world(start, meeting, place.rendezvous().secret, wires, session.value())
                      : session.status();
  if (connected.is_ok()) {
    if (world.rank == 0) place.close_meeting();
    return std::optional<Session>(std::move(session).value());
  }
  if (meeting.is_superseded()) return std::optional<Session>();
  reserve = {};
  const Status cause = meeting.settle(connected);
  if (place.rendezvous().server != nullptr) meeting.await_readers(kFarewellWait);
  return cause;
}

// What was found and chosen, in one line for the log.
std::string summary_of(const Session& session) {
  const Place& place = session.place;
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

Result<Session> bootstrap(MeetingPlace& place, InitOptions options, const store::GetEnv& get_env) {
  Result<store::World> detected = store::detect_world(get_env);
  if (!detected.is_ok()) return detected.status();
  const Result<Config> parsed = parse_config(get_env);
  const Config config = parsed.is_ok() ? parsed.value() : Config{};
  const Deadline deadline =
      Deadline::after(static_cast<Nanos>(config.start_timeout_s * static_cast<double>(kSecond)));
  const Result<store::World> completed = place.complete(std::move(detected).value(), deadline);
  if (!completed.is_ok()) return completed.status();
  const store::World& world = completed.value();
  apply_log_settings(config, world.rank);
  if (!world.warning.empty()) RUEDA_LOG(kWarning, world.warning);

  Status refused = parsed.is_ok() ? check_options(options, world) : parsed.status();
  if (refused.is_ok()) refused = check_algorithm_settings(config);
  const std::string too_few = allow_descriptors(descriptors_for(world.size));
  if (!too_few.empty()) RUEDA_LOG(kWarning, too_few);
  if (world.size == 1) {
    if (!refused.is_ok()) return refused;
    Result<Session> made = make_session(config, world, place.next_alone());
    if (!made.is_ok()) return made;
    Session& session = made.value();
    session.all->push_back(own_facts(config, world, options));
    session.place.local_rank = std::max(world.local_rank, 0);
    attach_backends(session, nullptr);
    RUEDA_LOG(kInfo, summary_of(session));
    return made;
  }
  if (Status s = place.open(world, config.interface, deadline); !s.is_ok())
    return refused.is_ok() ? s : refused;
  if (!refused.is_ok()) {
    place.refuse(refused);
    return refused;
  }
  const Start start{config, world, options, deadline};
  Result<std::optional<Session>> met = meet(start, place);
  while (met.is_ok() && !met.value()) met = meet(start, place);
  if (!met.is_ok()) return met.status();
  place.forget_loss();
  Session session = *std::move(met).value();
  RUEDA_LOG(kInfo, summary_of(session));
  if (world.rank == 0) {
    const std::string crowded = warn_of_crowded_hosts(*session.all);
    if (!crowded.empty()) RUEDA_LOG(kWarning, crowded);
    for (const std::string& sentence : ignored_settings(get_env)) RUEDA_LOG(kWarning, sentence);
  }
  return session;
}

}  // namespace rueda::runtime
