#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "rueda/base/descriptors.h"
#include "rueda/base/limits.h"
#include "rueda/base/log.h"
#include "rueda/store/address.h"
#include "rueda/store/file_run.h"
#include "rueda/store/find_rank_0.h"
#include "rueda/store/job_id.h"
#include "rueda/store/launcher_space.h"
#include "rueda/store/members.h"
#include "rueda/store/socket.h"
#include "rueda/store/store_url.h"
#include "rueda/store/tcp_store.h"
#include "rueda/store/user_key.h"
#include "rueda/store/world.h"

namespace rueda::store {
namespace {

constexpr Nanos kLastReplyWait = 5 * kSecond;  // how long we wait for the launcher's last reply
constexpr const char* kUrlKey = "rueda-url";
constexpr const char* kSecretKey = "rueda-secret";
constexpr const char* kFailed = "failed";

const char* process_variable(const char* name) { return std::getenv(name); }

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// In a pod the file comes from the manifest, so that is what must be corrected.
Status secret_not_mounted(const World& world, const Status& status) {
  std::string why = status.why;
  if (why.ends_with('.')) why.pop_back();
  return {status.code, why + "; RUEDA_SECRET_FILE names it, so the manifest must mount the job's Secret at " +
                           folder_of(world.secret_file) + ", readable for user " + std::to_string(geteuid()) +
                           " (defaultMode: 0400; fsGroup for other users than 0)"};
}

}  // namespace

Result<Secret> secret_of(const World& world) {
  if (!world.secret_file.empty()) {
    Result<Secret> secret = read_secret_file(world.secret_file);
    if (!secret.is_ok() && world.is_in_pod) return secret_not_mounted(world, secret.status());
    return secret;
  }
  if (world.is_in_pod && world.local_size != world.size)
    return Status(Code::kInvalidArgument,
                  "RUEDA_SECRET_FILE is not set, and pods have no common home directory for a key; mount the "
                  "job's Secret into every pod and set RUEDA_SECRET_FILE to the file in it");
  const Result<std::string> path = user_key_path(process_variable);
  if (!path.is_ok()) return path.status();
  const Result<Secret> key = user_key(path.value());
  if (!key.is_ok()) return key.status();
  return secret_of_job(key.value(), world.job);
}

namespace {

Result<Rendezvous> serve_and_join(const Attempt& attempt, const std::string& address, int port,
                                  const Secret& secret) {
  const World& world = attempt.world;
  // Every rank has one connection to the store until init is over.
  const std::string too_few = allow_descriptors(descriptors_for(world.size, world.local_size));
  if (!too_few.empty()) RUEDA_LOG(kDebug, too_few);  // init warns about it
  Result<std::unique_ptr<StoreServer>> server =
      serve_store(address, port, world.job, secret, attempt.release);
  if (!server.is_ok()) return server.status();
  Result<std::unique_ptr<Store>> store =
      open_tcp_store(address, server.value()->port(), world.job, secret, attempt.release, attempt.deadline);
  if (!store.is_ok()) return store.status();
  return Rendezvous{std::move(server).value(), std::move(store).value(), secret, {}};
}

Result<Rendezvous> meet_at_url(const Attempt& attempt) {
  const World& world = attempt.world;
  const Result<StoreUrl> url = parse_store_url(world.url);
  if (!url.is_ok()) return url.status();
  const Result<Secret> secret = secret_of(world);
  if (!secret.is_ok()) return secret.status();
  if (url.value().is_file) {
    const std::string& dir = url.value().dir;
    Result<FileRun> run = world.rank == 0
                              ? begin_file_run(dir, world.job, attempt.deadline)
                              : join_file_run(dir, world.job, attempt.deadline, attempt.is_interrupted);
    if (!run.is_ok()) return run.status();
    auto& [store, lease, run_dir] = run.value();
    return Rendezvous{nullptr, std::move(store), secret.value(), std::move(lease), std::move(run_dir)};
  }
  const auto& [is_file, dir, host, port] = url.value();
  if (world.rank != 0 || world.is_store_served)
    return find_rank_0(attempt, host, std::span(&port, 1), secret.value());
  const Result<std::string> address = address_of_rank_0(attempt, host);
  if (!address.is_ok()) return address.status();
  return serve_and_join(attempt, address.value(), port, secret.value());
}

Result<Rendezvous> meet_at_seed(const Attempt& attempt) {
  const World& world = attempt.world;
  const Result<Secret> secret = secret_of(world);
  if (!secret.is_ok()) return secret.status();
  const auto ports = seed_ports(world.job);
  const std::string host = rendezvous_host(world);
  if (world.rank != 0) return find_rank_0(attempt, host, ports, secret.value());
  const Result<std::string> address = address_of_rank_0(attempt, host);
  if (!address.is_ok()) return address.status();
  Result<Rendezvous> met = Status(Code::kUnavailable, "no port was tried");
  for (const int port : ports) {
    met = serve_and_join(attempt, address.value(), port, secret.value());
    if (met.is_ok() || met.status().code != Code::kUnavailable) return met;
  }
  return Status(met.status().code, "none of the 16 ports of job '" + world.job + "' is free on " +
                                       address.value() + ": " + met.status().why + "; set RUEDA_STORE");
}

// Rank 0 puts its address and a new secret into the space, which only this job can read.
Result<Rendezvous> serve_in_space(const Attempt& attempt, LauncherSpace& space,
                                  const Result<Secret>& secret) {
  Result<Rendezvous> served = secret.is_ok() ? Status(Code::kInternal, "not served yet") : secret.status();
  if (secret.is_ok()) {
    const Result<std::string> address = attempt.interface.empty() && attempt.is_one_host()
                                            ? std::string("127.0.0.1")
                                            : choose_address(attempt.interface, "");
    served = address.is_ok() ? serve_and_join(attempt, address.value(), 0, secret.value())
                             : Result<Rendezvous>(address.status());
  }
  // The other ranks wait in the fence, so they must be told about a failure.
  const std::string url = served.is_ok() ? served.value().server->url() : kFailed;
  Status status = space.put(kUrlKey, url, attempt.deadline);
  if (status.is_ok() && served.is_ok() && attempt.world.secret_file.empty())
    status = space.put(kSecretKey, to_hex(secret.value().key), attempt.deadline);
  if (status.is_ok()) status = space.fence(attempt.deadline);
  if (!served.is_ok() || status.is_ok()) return served;
  return status;
}

Result<Rendezvous> join_in_space(const Attempt& attempt, LauncherSpace& space) {
  if (Status status = space.fence(attempt.deadline); !status.is_ok()) return status;
  const Result<std::string> text = space.get(kUrlKey, 0, attempt.deadline);
  if (!text.is_ok()) return text.status();
  if (text.value() == kFailed)
    return Status(Code::kUnavailable,
                  "rank 0 could not open the rendezvous; the message of rank 0 gives the reason");
  const Result<StoreUrl> url = parse_store_url(text.value());
  if (!url.is_ok()) return url.status();
  Secret secret;
  if (attempt.world.secret_file.empty()) {
    const Result<std::string> hex = space.get(kSecretKey, 0, attempt.deadline);
    if (!hex.is_ok()) return hex.status();
    const Result<Bytes> key = from_hex(hex.value());
    if (!key.is_ok()) return key.status();
    secret.key = key.value();
  } else {
    const Result<Secret> read = read_secret_file(attempt.world.secret_file);
    if (!read.is_ok()) return read.status();
    secret = read.value();
  }
  if (secret.key.size() < 16)
    return Status(Code::kPermissionDenied, "the secret in the launcher's space is too short");
  const TcpSite site = attempt.site_at(url.value().host, url.value().port, secret);
  HandshakeOutcome refused{};
  Result<std::unique_ptr<Store>> store = dial_from_host(attempt, site, attempt.deadline, refused);
  if (!store.is_ok()) store = open_tcp_store(site, attempt.deadline);
  if (!store.is_ok()) return store.status();
  return Rendezvous{nullptr, std::move(store).value(), secret, {}};
}

Result<std::shared_ptr<LauncherSpace>> open_space(World::Method method, bool is_shared, Deadline deadline) {
  Result<std::unique_ptr<LauncherSpace>> space =
      method == World::Method::kPmix ? open_pmix_space() : open_pmi_space(deadline, is_shared);
  if (!space.is_ok()) return space.status();
  return std::shared_ptr<LauncherSpace>(std::move(space).value());
}

Result<Rendezvous> meet_in_space(const Attempt& attempt) {
  const World& world = attempt.world;
  std::shared_ptr<LauncherSpace> space = world.space;
  if (space == nullptr) {
    Result<std::shared_ptr<LauncherSpace>> opened =
        open_space(world.method, world.is_space_shared, attempt.deadline);
    if (!opened.is_ok() && !world.seed_host.empty()) return meet_at_seed(attempt);
    if (!opened.is_ok()) return opened.status();
    space = std::move(opened).value();
  }
  Result<Rendezvous> met = Status(Code::kInternal, "not met yet");
  if (world.rank == 0)
    met = serve_in_space(attempt, *space,
                         world.secret_file.empty() ? make_secret() : read_secret_file(world.secret_file));
  else
    met = join_in_space(attempt, *space);
  const Status status = space->finish(Deadline::after(kLastReplyWait));
  if (met.is_ok() && !status.is_ok()) return status;
  return met;
}

Status rank_unknown(const World& world) {
  return {Code::kInvalidArgument, "the launcher gave rank " + std::to_string(world.rank) + " of " +
                                      std::to_string(world.size) + ", which is not possible (" +
                                      world.reason + "); set RUEDA_RANK, RUEDA_SIZE and RUEDA_STORE"};
}

}  // namespace

std::string rendezvous_host(const World& world) {
  if (!world.seed_host.empty()) {
    const bool is_named = world.seed_fallback.empty() || resolve(world.seed_host, 9).is_ok();
    return is_named ? world.seed_host : world.seed_fallback;
  }
  const Result<StoreUrl> url = parse_store_url(world.url);
  return url.is_ok() ? url.value().host : "";
}

Result<World> complete_world(World world, Deadline deadline) {
  const bool is_pmix = world.method == World::Method::kPmix || world.launcher == "pmix";
  const bool is_unknown = world.rank < 0 || world.size < 0;
  // With Hydra, the job id can be found nowhere else.
  const bool is_nameless = world.method == World::Method::kPmi && world.launcher != "slurm";
  if (!is_unknown && !is_nameless) return world;
  Result<std::shared_ptr<LauncherSpace>> space =
      open_space(is_pmix ? World::Method::kPmix : World::Method::kPmi, world.is_space_shared, deadline);
  if (!space.is_ok()) return is_unknown ? Result<World>(space.status()) : Result<World>(std::move(world));
  const LauncherFacts& facts = space.value()->facts();
  if (is_unknown) {
    world.rank = facts.rank;
    world.size = facts.size;
    if (facts.local_rank >= 0 && facts.local_size > facts.local_rank) {
      world.local_rank = facts.local_rank;
      world.local_size = facts.local_size;
    }
  }
  if (world.rank < 0 || world.rank >= world.size || world.size > kMaxRanks) return rank_unknown(world);
  if (is_nameless && process_variable("RUEDA_JOB") == nullptr)
    world.job = make_job_id(world.launcher + "-" + facts.job);
  if (world.size == 1) {
    world.local_rank = 0;
    world.local_size = 1;
  }
  if (world.size == 1 || world.method == World::Method::kUrl) {
    if (world.size == 1) world.method = World::Method::kNone;
    if (Status status = space.value()->finish(deadline); !status.is_ok()) return status;
    return world;
  }
  world.space = std::move(space).value();
  return world;
}

Result<Rendezvous> open_rendezvous(const World& world, const std::string& interface,
                                   const std::string& release, Deadline deadline,
                                   const Interrupted& is_interrupted) {
  if (world.rank < 0 || world.rank >= world.size) return rank_unknown(world);
  const Attempt attempt{world, interface, release, deadline, is_interrupted};
  switch (world.method) {
    case World::Method::kUrl:
      return meet_at_url(attempt);
    case World::Method::kSeed:
      return meet_at_seed(attempt);
    case World::Method::kPmi:
    case World::Method::kPmix:
    case World::Method::kGiven:
      return meet_in_space(attempt);
    case World::Method::kNone:
      break;
  }
  Result<Secret> secret = make_secret();
  if (!secret.is_ok()) return secret.status();
  return Rendezvous{nullptr, nullptr, std::move(secret).value(), {}};
}

}  // namespace rueda::store
