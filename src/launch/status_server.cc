#include "launch/status_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "rueda/base/release.h"

namespace rueda::launch {
namespace {

// However often somebody asks, the ranks hear ten equal questions a second at most, and 50 different ones.
constexpr Nanos kFresh = 100 * kMillisecond;  // an answer of this age is given again
constexpr auto kSpacing = std::chrono::milliseconds(20);
constexpr size_t kMaxKept = 4u << 20;

// Of the time that the caller waits, the ranks have this share; the rest is for the ways there and back.
int time_of_ranks_ms(int timeout_ms) { return std::max(1, timeout_ms * 3 / 4); }

}  // namespace

StatusServer::~StatusServer() {
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
  }
  told_.notify_all();
  endpoint_.reset();
}

Status StatusServer::open(const std::string& folder, std::vector<status::HostAnswer> hosts) {
  if (hosts.empty()) return Status::ok();
  hosts_ = std::move(hosts);
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto started = status::Endpoint::start(
      folder, [this](const std::string& request) { return answer(request); }, {}, status::kLauncherSocket);
  if (!started.is_ok()) return started.status();
  endpoint_ = std::move(started).value();
  return Status::ok();
}

Status StatusServer::offer(const std::string& folder, std::vector<status::HostAnswer> hosts) {
  if (!endpoint_) return open(folder, std::move(hosts));
  const std::scoped_lock lock(mutex_);
  hosts_ = std::move(hosts);
  return Status::ok();
}

std::string StatusServer::answer(const std::string& request) {
  const std::optional<status::JobQuestion> question = status::parse_question(request);
  if (!question) return {};
  if (request == last_request_ && monotonic_now() - last_at_ < kFresh) return last_reply_;
  std::optional<status::JobAnswer> answers = gather(*question);
  if (!answers) return {};
  std::string reply = status::encode(*answers);
  last_request_.clear();
  if (reply.size() <= kMaxKept) {
    last_request_ = request;
    last_reply_ = reply;
    last_at_ = monotonic_now();
  }
  return reply;
}

status::JobAnswer StatusServer::asked_by(const status::JobQuestion& question) const {
  status::JobAnswer about{.release = kRelease, .launcher = getpid(), .hosts = {}};
  for (const status::HostAnswer& host : hosts_)
    if (question.rank < 0 || std::ranges::find(host.ranks, question.rank) != host.ranks.end())
      about.hosts.push_back(host);
  for (status::HostAnswer& host : about.hosts)
    if (question.rank >= 0) host.ranks = {question.rank};
  return about;
}

// Nothing if the launcher ends meanwhile.
std::optional<status::JobAnswer> StatusServer::gather(const status::JobQuestion& question) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(question.timeout_ms);
  std::unique_lock lock(mutex_);
  if (told_.wait_for(lock, kSpacing, [this] { return is_closing_; })) return std::nullopt;
  query_.emplace(++last_id_, asked_by(question));
  to_pass_ = {.id = last_id_, .text = question};
  to_pass_->text.timeout_ms = time_of_ranks_ms(question.timeout_ms);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = write(wake_.get(), &one, sizeof(one));
  told_.wait_until(lock, until, [this] { return is_closing_ || query_->is_complete(); });
  to_pass_.reset();
  status::JobAnswer answers = std::move(*query_).result(question.timeout_ms);
  query_.reset();
  if (is_closing_) return std::nullopt;
  return answers;
}

void StatusServer::watch(PollSet& set, std::span<HostLink> links) {
  if (endpoint_) set.watch(wake_.get(), POLLIN, [this, links] { pass_on(links); });
}

void StatusServer::pass_on(std::span<HostLink> links) {
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &rung, sizeof(rung));
  const std::scoped_lock lock(mutex_);
  if (!to_pass_ || !query_) return;
  const Bytes payload = encode(*to_pass_);
  const Rank rank = to_pass_->text.rank;
  to_pass_.reset();
  const Nanos now = monotonic_now();
  for (HostLink& link : links) {
    const auto host = std::ranges::find(hosts_, link.host(), &status::HostAnswer::host);
    if (host == hosts_.end()) continue;
    if (rank >= 0 && std::ranges::find(host->ranks, rank) == host->ranks.end()) continue;
    if (link.has_said_bye() || !link.is_open())
      query_->on_missing(link.host(), "its agent has ended");
    else if (link.is_silent(now))
      query_->on_missing(link.host(), fmt::format("nothing has been heard from its agent for {} s",
                                                  (now - link.last_heard()) / kSecond));
    else
      link.send(MessageType::kAsk, payload);
  }
  told_.notify_all();
}

void StatusServer::on_answer(const std::string& host, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto id = reader.get<uint32_t>();
  const std::scoped_lock lock(mutex_);
  if (!query_ || !reader.is_ok() || query_->id() != id) return;  // too late
  Result<std::vector<status::ProcessAnswer>> processes =
      status::decode_processes(payload.subspan(sizeof(id)));
  if (processes.is_ok())
    query_->on_answer(host, std::move(processes).value());
  else
    query_->on_missing(host, processes.status().why);
  told_.notify_all();
}

}  // namespace rueda::launch
