#include "launch/host_discovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <utility>

#include "launch/pause.h"
#include "launch/processes.h"
#include "rueda/base/counted.h"

extern char** environ;

namespace rueda::launch {
namespace {

constexpr size_t kMostText = 1 << 20;
constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool names_slots(std::string_view line) {
  const size_t colon = line.rfind(':');
  return colon != std::string_view::npos && (!line.starts_with('[') || line.find(']') < colon);
}

std::vector<std::string> own_variables() {
  std::vector<std::string> variables;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

}  // namespace

Result<std::vector<HostSlots>> parse_discovered(std::string_view text, int default_slots) {
  std::string list;
  while (!text.empty()) {
    const std::string_view line = trimmed(text.substr(0, text.find('\n')));
    text.remove_prefix(
        std::min(text.size(), text.find('\n') == std::string_view::npos ? text.size() : text.find('\n') + 1));
    if (line.empty()) continue;
    if (line.find_first_of(" \t,") != std::string_view::npos)
      return Status(
          Code::kInvalidArgument,
          fmt::format("it printed \"{}\", which is neither host:slots nor host", line.substr(0, 80)));
    if (!list.empty()) list += ',';
    list += names_slots(line) ? std::string(line) : fmt::format("{}:{}", line, default_slots);
  }
  if (list.empty()) return std::vector<HostSlots>();
  return parse_hosts(list);
}

void HostDiscovery::watch(PollSet& set) {
  if (out_.is_open()) set.watch(out_.get(), POLLIN, [this] { read_some(); });
}

Status HostDiscovery::start(Nanos now) {
  Result<Pipe> pipe = make_pipe();
  if (!pipe.is_ok()) return pipe.status();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  // The launcher collects the ends of all its children, so the shell tells how this one ended.
  const std::string script = "(" + script_ + "\n); printf '\\n%d' $?";
  const Result<pid_t> pid = spawn({.path = "/bin/sh",
                                   .argv = {"sh", "-c", script},
                                   .env = own_variables(),
                                   .cwd = "",
                                   .in = null.get(),
                                   .out = pipe.value().write.get(),
                                   .err = null.get(),
                                   .death_signal = SIGKILL});
  if (!pid.is_ok()) return pid.status();
  pid_ = pid.value();
  out_ = std::move(pipe.value().read);
  set_nonblocking(out_.get());
  text_.clear();
  is_at_end_ = false;
  began_ = now;
  return Status::ok();
}

void HostDiscovery::read_some() {
  std::array<char, 16'384> chunk;
  const ssize_t size = read(out_.get(), chunk.data(), chunk.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  is_at_end_ = size <= 0;
  if (size > 0 && text_.size() < kMostText) text_.append(chunk.data(), static_cast<size_t>(size));
}

void HostDiscovery::end() {
  if (out_.is_open()) kill(-pid_, SIGKILL);  // its own session; it has not ended, or hides a child
  out_.reset();
}

Result<std::vector<HostSlots>> HostDiscovery::result() const {
  if (!is_at_end_)
    return Status(Code::kTimeout, fmt::format("the discovery script {} did not end within {} s", script_,
                                              kDiscoveryTime / kSecond));
  const size_t last = text_.rfind('\n');
  int code = -1;
  if (last != std::string::npos) std::from_chars(text_.data() + last + 1, text_.data() + text_.size(), code);
  if (code != 0)
    return Status(Code::kUnavailable,
                  fmt::format("Failed to execute discovery script: {}. Exit code: {}", script_, code));
  Result<std::vector<HostSlots>> hosts =
      parse_discovered(std::string_view(text_).substr(0, last), default_slots_);
  if (hosts.is_ok()) return hosts;
  return Status(hosts.status().code, fmt::format("the output of the discovery script {} is refused: {}",
                                                 script_, hosts.status().why));
}

std::optional<Result<std::vector<HostSlots>>> HostDiscovery::tick(Nanos now) {
  if (out_.is_open()) {
    if (!is_at_end_ && now - began_ < kDiscoveryTime) return std::nullopt;
    Result<std::vector<HostSlots>> hosts = result();
    end();
    return hosts;
  }
  if (now < again_at_) return std::nullopt;
  again_at_ = now + kDiscoveryInterval;
  if (const Status started = start(now); !started.is_ok()) return Result<std::vector<HostSlots>>(started);
  return std::nullopt;
}

Result<std::vector<HostSlots>> HostDiscovery::run_once() {
  again_at_ = 1;
  while (true) {
    if (std::optional<Result<std::vector<HostSlots>>> hosts = tick(monotonic_now())) return *hosts;
    PollSet set;
    watch(set);
    set.wait(Deadline::after(100 * kMillisecond));
  }
}

int count_slots(std::span<const HostSlots> hosts) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

FirstHosts::Answer FirstHosts::hear(const Result<std::vector<HostSlots>>& found, Nanos waited) {
  if (!found.is_ok() && slots_ < 0) return {.end = found.status()};
  const std::string before = std::exchange(trouble_, found.is_ok() ? "" : found.status().why);
  if (found.is_ok()) slots_ = count_slots(found.value());
  if (found.is_ok() && slots_ >= size_) return {.is_enough = true};
  const std::string names =
      fmt::format("the discovery script {} names {}", options_.discovery_script, counted(slots_, "slot"));
  if (waited >= nanos(options_.timeout_s, kSecond))
    return {.end = Status(
                Code::kTimeout,
                fmt::format("Timed out waiting for minimum number of slots to become available. For {} s {}, "
                            "and there must be enough resources to run at least {} Horovod processes (-np); "
                            "--elastic-timeout gives them longer",
                            options_.timeout_s, names, size_))};
  Answer answer;
  if (!trouble_.empty() && trouble_ != before) answer.say.push_back(trouble_ + "; the job waits on");
  if (pace_.is_due(waited) || !std::exchange(has_told_, true))
    answer.say.push_back(
        fmt::format("{}, and the job starts when there are {} (-np); it has waited for {} s of {}", names,
                    size_, waited / kSecond, options_.timeout_s));
  return answer;
}

Status discover_first_hosts(RunOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (elastic.discovery_script.empty()) return Status::ok();
  HostDiscovery discovery(elastic.discovery_script, elastic.default_slots);
  FirstHosts first(elastic, options.size);
  const Nanos began = monotonic_now();
  while (true) {
    Result<std::vector<HostSlots>> hosts = discovery.run_once();
    const FirstHosts::Answer answer = first.hear(hosts, monotonic_now() - began);
    if (answer.is_enough) {
      options.hosts = std::move(hosts.value());
      return Status::ok();
    }
    if (!answer.end.is_ok()) return answer.end;
    for (const std::string& sentence : answer.say) fmt::print(stderr, "rueda: {}\n", sentence);
    if (pause_for(kDiscoveryInterval, options.is_stdin_watched) != 0)
      return {Code::kUnavailable, "the job was told to end before there were enough slots"};
  }
}

}  // namespace rueda::launch
