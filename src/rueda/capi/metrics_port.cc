#include "rueda/capi/metrics_port.h"

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/capi/observed.h"
#include "rueda/capi/state.h"
#include "rueda/status/folder.h"
#include "rueda/status/metrics_port.h"
#include "rueda/status/token_file.h"
#include "rueda/store/hex.h"

namespace rueda::capi {
namespace {

constexpr int64_t kLastPort = 65'535;

struct OpenPort {
  std::mutex mutex;
  std::unique_ptr<status::MetricsPort> port;
  std::string file, token;  // a token file of our own; empty: the user has named one, which stays
};
// Never freed, like the state of capi.
OpenPort& open_port() {
  static auto* const instance = new OpenPort;
  return *instance;
}

// It opens the metrics and nothing else: the secret cannot be found from it.
Result<std::string> token_of(const Secret& job) {
  const Result<Secret> secret = job.key.empty() ? make_secret() : Result<Secret>(job);
  if (!secret.is_ok()) return secret.status();
  return store::to_hex(hmac_sha256(secret.value().key, std::as_bytes(std::span(status::kTokenLabel))));
}

Status write_token(const Config& config, const std::string& token) {
  OpenPort& at = open_port();
  at.file.clear();
  if (!config.metrics_token_file.empty()) return status::write_token_file(config.metrics_token_file, token);
  const std::string folder = status::folder_path();
  if (Status status = status::make_folder(folder); !status.is_ok()) return status;
  at.file = status::token_file_path(folder, config.metrics_port);
  at.token = token;
  return status::write_token_file(at.file, token);
}

std::string current_text() {
  const std::shared_ptr<runtime::Engine> now = engine();
  return status::prometheus_text(current_metrics(now.get()), metric_labels(now.get()));
}

Result<std::unique_ptr<status::MetricsPort>> open(const runtime::Session& session, const Secret& job) {
  const int64_t port = session.config.metrics_port + session.place.local_rank;
  if (port > kLastPort)
    return Status(Code::kInvalidArgument, "the port for local rank " +
                                              std::to_string(session.place.local_rank) + " would be " +
                                              std::to_string(port) + "; name a smaller port");
  const Result<std::string> given = status::given_token(session.config.metrics_token_file);
  if (!given.is_ok()) return given.status();
  const Result<std::string> token = given.value().empty() ? token_of(job) : given;
  if (!token.is_ok()) return token.status();
  const auto address = make_tcp_address(session.config.metrics_address, static_cast<uint16_t>(port));
  if (!address.is_ok()) return address.status();
  auto opened = status::MetricsPort::open(address.value(), token.value(), current_text);
  if (!opened.is_ok() || !given.value().empty()) return opened;
  // Only who has the port may say which token opens it: another job may have these ports.
  if (Status written = write_token(session.config, token.value()); !written.is_ok()) return written;
  return opened;
}

}  // namespace

void start_metrics_port(const runtime::Session& session, const Secret& job) {
  if (session.config.metrics_port == 0) return;
  OpenPort& at = open_port();
  const std::lock_guard lock(at.mutex);
  auto opened = open(session, job);
  if (opened.is_ok())
    at.port = std::move(opened).value();
  else
    RUEDA_LOG(kWarning, "This rank does not serve its metrics, and training goes on: " + opened.status().why +
                            " (RUEDA_METRICS_PORT, docs/metrics.md).");
}

void stop_metrics_port() {
  std::unique_ptr<status::MetricsPort> leaving;  // joins its thread when the lock is released
  const std::lock_guard lock(open_port().mutex);
  OpenPort& at = open_port();
  leaving = std::move(at.port);
  // A rank that ends otherwise leaves it to the agent of its host, or to the next job with this port.
  if (!at.file.empty()) status::remove_token_file(std::exchange(at.file, {}), at.token);
}

}  // namespace rueda::capi
