#include "launch/job_start.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "launch/branch_messages.h"
#include "rueda/base/clock.h"
#include "rueda/base/limits.h"
#include "rueda/base/release.h"
#include "rueda/store/world.h"

extern char** environ;

namespace rueda::launch {
namespace {

constexpr Nanos kOwnStoreTime = 10 * kSecond;  // its server is a thread of this process

int32_t to_ms(double seconds) {
  return static_cast<int32_t>(std::min<Nanos>(nanos(seconds, kSecond) / kMillisecond, INT32_MAX));
}

std::string make_job_id() {
  std::array<std::byte, 8> random{};
  const ssize_t size = getrandom(random.data(), random.size(), 0);
  RUEDA_CHECK(size == std::ssize(random), "the kernel gives eight random bytes");
  return "job-" + to_hex(random);
}

Result<std::string> choose_store_address(const RunOptions& options, std::span<const HostLink> links) {
  const auto remote = std::ranges::find_if(links, &HostLink::is_remote);
  const std::string interface = options.tuning.network_interface.value_or("");
  if (remote == links.end()) {
    // Hosts that a script names later have to reach it, too.
    const bool may_spread = !options.elastic.discovery_script.empty();
    return store::choose_address(interface, may_spread ? "" : "127.0.0.1");
  }
  // The host can reach the address from which it saw us connect, unless an address translation lies between.
  const std::string seen = remote->hello() ? remote->hello()->launcher_address : "";
  if (interface.empty() && !seen.empty() && is_own_address(seen)) return seen;
  const std::string there = remote->hello() ? remote->hello()->own_address : "";
  return store::choose_address(interface, there.empty() ? remote->host() : there);
}

// What ranks are told: programs can write below it, too.
std::string log_place(const OutputOptions& output) {
  constexpr std::string_view kLocal = "local://";  // fsspec's word for a folder, which programs do not know
  if (output.log_url.starts_with(kLocal)) return output.log_url.substr(kLocal.size());
  if (!output.log_url.empty() || output.log_dir.empty()) return output.log_url;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(output.log_dir, error);
  return error ? output.log_dir : path.lexically_normal().string();
}

Result<std::string> read_stage_file(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string stage{std::istreambuf_iterator<char>(file), {}};
  if (file && !stage.empty() && stage.size() <= kMaxMessageBytes / 2) return stage;
  return Status(Code::kUnavailable,
                fmt::format("cannot pass {} to the ranks: it is missing, empty or larger than {} MiB", path,
                            kMaxMessageBytes / 2 >> 20));
}

}  // namespace

Result<JobIdentity> make_identity(const std::string& secret_file) {
  const bool is_given = !secret_file.empty() && access(secret_file.c_str(), F_OK) == 0;
  Result<Secret> secret = is_given ? read_secret_file(secret_file) : make_secret();
  if (!secret.is_ok()) return secret.status();
  if (!is_given && !secret_file.empty())
    if (Status written = write_secret_file(secret_file, secret.value()); !written.is_ok()) return written;
  return JobIdentity{.id = make_job_id(), .secret = std::move(secret.value())};
}

Result<JobStart> prepare_ranks(const RunOptions& options, const JobIdentity& identity,
                               std::span<const HostLink> links, const std::string& door) {
  const Result<std::string> address =
      door.empty() ? choose_store_address(options, links) : Result<std::string>(std::string(door));
  if (!address.is_ok()) return address.status();
  Result<std::unique_ptr<store::StoreServer>> store =
      store::serve_store(address.value(), 0, identity.id, identity.secret, kRelease);
  if (!store.is_ok()) return store.status();
  Result<std::unique_ptr<store::Store>> client = std::unique_ptr<store::Store>();
  if (options.is_elastic())
    client = store::open_tcp_store(address.value(), store.value()->port(), identity.id, identity.secret,
                                   kRelease, Deadline::after(kOwnStoreTime));
  if (!client.is_ok()) return client.status();
  const Result<std::string> stage = read_stage_file(options.stage_file);
  if (!stage.is_ok()) return stage.status();
  std::array<char, 4096> cwd{};
  if (getcwd(cwd.data(), cwd.size()) == nullptr)
    return Status(Code::kUnavailable, "the current directory no longer exists; change to another one");
  const HostLink& first = links.front();
  const std::string& there = first.hello()->own_address;
  const RendezvousSettings rendezvous{.job = identity.id,
                                      .store_url = store.value()->url(),
                                      .master_addr = !first.is_remote() ? address.value()
                                                     : there.empty()    ? first.host()
                                                                        : there,
                                      .master_port = first.hello()->free_port};
  Job common{.argv = options.command,
             .cwd = cwd.data(),
             .secret = to_hex(identity.secret.key),
             .stage = stage.value()};
  common.grace_ms = nanos(options.grace_s, kSecond) / kMillisecond;
  common.binds_cores = options.binds_cores;
  common.collects_metrics = !options.output.log_dir.empty();
  common.is_elastic = options.is_elastic();
  return JobStart{.store = std::move(store.value()),
                  .rendezvous = rendezvous,
                  .common = std::move(common),
                  .client = std::move(client.value())};
}

Result<Bytes> job_message(const RunOptions& options, const JobStart& start,
                          std::span<const Placement> placements, const HostLink& link, int host) {
  Job job = start.common;
  job.env = forwarded_environment(environ, link.is_remote());
  if (link.has_joined()) {  // its connection is not secret, and it has an environment and a folder of its own
    std::erase_if(job.env, [](const auto& one) {
      return !one.first.starts_with("RUEDA_") && !one.first.starts_with("HOROVOD_");
    });
    job.secret.clear();
    job.cwd.clear();
  }
  if (const std::string logs = log_place(options.output); !logs.empty())
    job.env.emplace_back("RUEDA_LOG_DIR", logs);
  job.env.emplace_back("RUEDA_RESTART_COUNT", std::to_string(options.restart_count));
  const Variables tuning = tuning_variables(options.tuning);
  job.env.insert(job.env.end(), tuning.begin(), tuning.end());
  job.ping_timeout_ms = link.is_remote() ? to_ms(options.agent_timeout_s) : 0;
  for (const Placement& place : placements) {
    if (place.host != host) continue;
    RankJob& rank = job.ranks.emplace_back();
    rank = {place.rank, rank_variables(place, options.size, link.host(), start.rendezvous)};
    const auto own = static_cast<size_t>(place.rank);
    if (own < start.own.size()) rank.env.insert(rank.env.end(), start.own[own].begin(), start.own[own].end());
  }
  Bytes payload = encode(job);
  if (payload.size() < kMaxMessageBytes - kMaxWrapping) return payload;
  return Status(Code::kInvalidArgument,
                "the environment and the command are too large to be sent to the agents; unset variables "
                "that are not needed");
}

}  // namespace rueda::launch
