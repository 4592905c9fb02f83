#include "rueda/runtime/bootstrap.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "rueda/base/check.h"
#include "rueda/base/config.h"
#include "rueda/base/log.h"
#include "rueda/base/release.h"
#include "rueda/runtime/backends.h"
#include "rueda/runtime/calibrate.h"
#include "rueda/runtime/local_ranks.h"
#include "rueda/transport/shm/shm.h"
#include "rueda/transport/tcp/tcp.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kSlice = 250 * kMillisecond;  // between looks for a failure of others

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

// The keys of one init in the store, and the wait for others that notices when one of them gave up.
class Meeting {
 public:
  Meeting(store::Store& store, Epoch attempt, Rank me, Rank size, Deadline deadline)
      : store_(store),
        prefix_("init" + std::to_string(attempt) + "/"),
        me_(me),
        size_(size),
        deadline_(deadline) {}

  Status publish(const Facts& facts) {
    const Bytes raw = encode(facts);
    return store_.set(key(me_), {reinterpret_cast<const char*>(raw.data()), raw.size()}, deadline_);
  }

  Status gather(std::vector<Facts>& all) {
    for (Rank rank = 0; rank < size_; ++rank) {
      Result<std::string> raw = await(rank);
      if (!raw.is_ok()) return raw.status();
      Result<Facts> facts = decode_facts(std::as_bytes(std::span(raw.value())));
      if (!facts.is_ok()) return facts.status();
      all.push_back(std::move(facts).value());
    }
    return Status::ok();
  }

  void report_failure(const Status& why) {
    const std::string text = "rank " + std::to_string(me_) + ": " + why.why;
    const Status told = store_.set(prefix_ + "failed", text, Deadline::after(2 * kSecond));
    if (!told.is_ok()) RUEDA_LOG(kDebug, told.why);
  }

  Status interrupted() {
    const Result<std::string> failed = store_.try_get(prefix_ + "failed", Deadline::after(2 * kSecond));
    if (failed.is_ok()) return {Code::kUnavailable, "another rank could not initialize: " + failed.value()};
    return Status::ok();
  }

 private:
  [[nodiscard]] std::string key(Rank rank) const { return prefix_ + "rank" + std::to_string(rank); }

  Result<std::string> await(Rank rank) {
    while (true) {
      Result<std::string> raw =
          store_.get(key(rank), Deadline::at(std::min(deadline_.when(), monotonic_now() + kSlice)));
      if (raw.is_ok() || raw.status().code != Code::kTimeout) return raw;
      if (Status s = interrupted(); !s.is_ok()) return s;
      if (deadline_.is_past()) {
        return Status(Code::kTimeout, missing() + " of " + std::to_string(size_) +
                                          " did not call init in time (met at " + store_.description() +
                                          "); start every rank, or raise RUEDA_START_TIMEOUT.");
      }
    }
  }

  [[nodiscard]] std::string missing() const {
    std::string text;
    int count = 0;
    for (Rank rank = 0; rank < size_ && count < 9; ++rank) {
      if (store_.try_get(key(rank), Deadline::after(kSlice)).is_ok()) continue;
      if (++count == 9)
        text += ", …";
      else
        text += (text.empty() ? "" : ", ") + std::to_string(rank);
    }
    return (count == 1 ? "rank " : "ranks ") + text;
  }

  store::Store& store_;
  std::string prefix_;
  Rank me_;
  Rank size_;
  Deadline deadline_;
};

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

Session make_session(const Config& config, const store::World& world, Epoch epoch) {
  Session session;
  session.config = config;
  session.me = world.rank;
  session.epoch = epoch;
  session.all = std::make_unique<std::vector<Facts>>();
  session.launcher = world.launcher;
  session.launcher_reason = world.reason;
  session.bell = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  RUEDA_CHECK(session.bell.is_open(), "no eventfd: the process is out of file descriptors");
  return session;
}

Result<Session> connect_world(const Config& config, const store::World& world, const InitOptions& options,
                              Meeting& meeting, Session session, const Secret& secret, Deadline deadline) {
  const transport::Identity identity{.job = world.job,
                                     .epoch = session.epoch,
                                     .rank = world.rank,
                                     .size = world.size,
                                     .secret = secret,
                                     .release = kRelease};
  Result<SharedWithHost> shared = SharedWithHost::create(options.arena, session.bell.get());
  if (!shared.is_ok()) return shared.status();
  Result<Wires> wires = open_wires(config, world, identity, shared.value());
  if (!wires.is_ok()) return wires.status();
  transport::ShmTransport* const shm = wires.value().shm;
  Facts mine = own_facts(config, world, options);
  mine.tcp_address = wires.value().tcp_address;
  mine.shm_address = wires.value().shm_address;
  if (Status s = meeting.publish(mine); !s.is_ok()) return s;
  if (Status s = meeting.gather(*session.all); !s.is_ok()) return s;
  if (Status s = check_agreement(*session.all); !s.is_ok()) return s;
  Result<Place> place = place_of(world.rank, *session.all);
  if (!place.is_ok()) return place.status();
  session.place = place.value();

  const auto interrupted = [&meeting] { return meeting.interrupted(); };
  session.links = std::make_unique<Links>(std::move(wires.value().transports), world.rank, *session.all);
  if (Status s = session.links->connect_all(deadline, interrupted); !s.is_ok()) return s;
  const Result<MeasuredLinks> costs =
      calibrate(*session.links, world.rank, *session.all, deadline, interrupted);
  if (!costs.is_ok()) return costs.status();
  session.measured = costs.value();
  std::shared_ptr<backend::LocalHost> host;
  if (shm != nullptr) {
    auto joined = std::move(shared).value().join(*shm, session.me, *session.all);
    if (!joined.is_ok()) return joined.status();
    host = std::move(joined).value();
  }
  attach_backends(session, std::move(host));
  return session;
}

std::string identity_of(const store::World& world) {
  return world.launcher + "|" + world.job + "|" + world.url + "|" + world.seed_host + "|" +
         std::to_string(world.rank) + "|" + std::to_string(world.size);
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

Result<store::World> MeetingPlace::complete(store::World detected, Deadline deadline) {
  const std::string identity = identity_of(detected);
  if (identity == detected_) return completed_;
  Result<store::World> completed = store::complete_world(std::move(detected), deadline);
  if (!completed.is_ok()) return completed;
  detected_ = identity;
  completed_ = completed.value();
  return completed;
}

Status MeetingPlace::open(const store::World& world, const std::string& interface, Deadline deadline) {
  const std::string identity = identity_of(world);
  if (rendezvous_.store && identity == identity_) return Status::ok();
  rendezvous_ = {};
  Result<store::Rendezvous> opened = store::open_rendezvous(world, interface, kRelease, deadline);
  if (!opened.is_ok()) return opened.status();
  rendezvous_ = std::move(opened).value();
  identity_ = identity;
  attempts_ = 0;
  return Status::ok();
}

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
  if (world.size == 1) {
    if (!refused.is_ok()) return refused;
    Session session = make_session(config, world, 1);
    session.all->push_back(own_facts(config, world, options));
    session.place.local_rank = std::max(world.local_rank, 0);
    attach_backends(session, nullptr);
    RUEDA_LOG(kInfo, summary_of(session));
    return session;
  }
  if (Status s = place.open(world, config.interface, deadline); !s.is_ok())
    return refused.is_ok() ? s : refused;
  const Epoch attempt = place.next_attempt();
  Meeting meeting(*place.rendezvous().store, attempt, world.rank, world.size, deadline);
  if (!refused.is_ok()) {
    meeting.report_failure(refused);
    return refused;
  }
  Result<Session> session =
      connect_world(config, world, options, meeting, make_session(config, world, attempt),
                    place.rendezvous().secret, deadline);
  if (!session.is_ok()) {
    // Whoever fails first names the cause; those it interrupts do not overwrite it with an echo.
    if (meeting.interrupted().is_ok()) meeting.report_failure(session.status());
  } else if (world.rank == 0 && attempt > 1) {
    const std::string old = "init" + std::to_string(attempt - 1) + "/";
    const Status cleaned = place.rendezvous().store->remove_prefix(old, Deadline::after(2 * kSecond));
    if (!cleaned.is_ok()) RUEDA_LOG(kDebug, cleaned.why);
  }
  if (session.is_ok()) RUEDA_LOG(kInfo, summary_of(session.value()));
  if (world.rank == 0 && session.is_ok()) {
    for (const std::string& sentence : ignored_settings(get_env)) RUEDA_LOG(kWarning, sentence);
  }
  return session;
}

}  // namespace rueda::runtime
