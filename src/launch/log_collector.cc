#include "launch/log_collector.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "launch/processes.h"
#include "launch/starters/spawn_agent.h"

namespace rueda::launch {
namespace {

constexpr std::string_view kFile = "file://";
constexpr size_t kMaxSentence = 4096;

// The interpreter that the user named, that of the ranks, or the one of this machine.
Result<std::string> find_python(const std::vector<std::string>& command) {
  const char* named = getenv("RUEDA_PYTHON");
  std::string program = "python3";
  const std::string first = command.empty() ? "" : command.front();
  if (first.substr(first.rfind('/') + 1).starts_with("python")) program = first;
  if (named != nullptr && *named != '\0') program = named;
  const char* path = getenv("PATH");
  return find_program(program, path != nullptr ? path : "/usr/bin:/bin", "");
}

}  // namespace

bool is_log_url(std::string_view log_dir) {
  const size_t scheme = log_dir.find("://");
  return scheme != std::string_view::npos && scheme > 0 && !log_dir.starts_with(kFile) &&
         log_dir.find('/') == scheme + 1;
}

Status check_log_url(std::string_view url) {
  if (url == kFile)
    return {Code::kInvalidArgument, "--log-dir file:// names no folder; write file:///folder"};
  if (url.starts_with(kFile) && url[kFile.size()] != '/')
    return {Code::kInvalidArgument,
            fmt::format("--log-dir {} names a folder of the host {}; write file:///folder", url,
                        url.substr(kFile.size(), url.find('/', kFile.size()) - kFile.size()))};
  if (!url.starts_with("memory://")) return Status::ok();
  return {
      Code::kInvalidArgument,
      fmt::format("--log-dir {} is a place in the memory of one process, where nobody could read the logs; "
                  "name a folder, or a URL of an object store",
                  url)};
}

std::string local_log_dir(const std::string& log_dir) {
  return log_dir.starts_with(kFile) ? log_dir.substr(kFile.size()) : log_dir;
}

Result<std::string> make_log_folder() {
  const char* base = getenv("TMPDIR");
  std::string path = fmt::format("{}/rueda-logs-XXXXXX", base != nullptr && *base != '\0' ? base : "/tmp");
  if (mkdtemp(path.data()) != nullptr) return path;
  return Status(Code::kUnavailable, fmt::format("cannot make a folder for logs like {}: {}; set TMPDIR", path,
                                                std::strerror(errno)));
}

Status LogCollector::start(const std::string& folder, const std::string& url,
                           const std::vector<std::string>& command, Deadline deadline) {
  folder_ = folder;
  url_ = url;
  const Result<std::string> python = find_python(command);
  Status ready =
      python.is_ok()
          ? launch(python.value())
          : Status(python.status().code,
                   fmt::format("--log-dir {} needs Python: {}; set RUEDA_PYTHON", url, python.status().why));
  if (ready.is_ok()) ready = await_news("ready", deadline);
  if (!ready.is_ok()) end();
  return ready;
}

Status LogCollector::launch(const std::string& python) {
  Result<Pipe> in = make_pipe();
  Result<Pipe> news = make_pipe();
  for (const Result<Pipe>* pipe : {&in, &news})
    if (!pipe->is_ok()) return pipe->status();
  const UniqueFd err(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));  // spawn() wants descriptors above the three
  const Result<pid_t> pid = spawn({.path = python,
                                   .argv = {python, "-m", "rueda.collect", folder_, url_},
                                   .env = own_environment(),
                                   .cwd = "",
                                   .in = in.value().read.get(),
                                   .out = news.value().write.get(),
                                   .err = err.get()});
  if (!pid.is_ok()) return pid.status();
  pid_ = pid.value();
  in_ = std::move(in.value().write);
  news_ = std::move(news.value().read);
  return Status::ok();
}

Status LogCollector::finish(Deadline deadline) {
  in_.reset();
  Status copied = await_news("done", deadline);
  if (!copied.is_ok()) {
    copied.why += fmt::format("; the logs are in {}", folder_);
    folder_.clear();
  }
  end();
  return copied;
}

void LogCollector::end() {
  in_.reset();
  // If it has ended, it may have been reaped with the agents, and its number may be another process by now.
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) {
    kill(pid_, SIGKILL);  // it ignores what schedulers send
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status LogCollector::await_news(std::string_view wanted, Deadline deadline) {
  std::string line;
  while (line.size() < kMaxSentence && !line.ends_with('\n')) {
    pollfd readable{.fd = news_.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&readable, 1, deadline.timeout_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return {Code::kTimeout, fmt::format("copying the logs to {} takes too long", url_)};
    char c = 0;
    const ssize_t size = read(news_.get(), &c, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return {Code::kUnavailable, fmt::format("what copies the logs to {} has ended", url_)};
    line += c;
  }
  line.pop_back();
  return line == wanted ? Status::ok() : Status(Code::kUnavailable, line);
}

}  // namespace rueda::launch
