#include "bench/network_namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/link_commands.h"
#include "launch/processes.h"
#include "rueda/base/clock.h"

extern char** environ;

namespace rueda::bench {
namespace {

constexpr Nanos kCommandLimit = 10 * kSecond;

// A namespace is a property of a thread. Another thread enters the new one, because ours has to stay
// where it is.
template <class Work>
Status elsewhere(Work&& work) {
  Status status;
  std::jthread([&] { status = work(); }).join();
  return status;
}

Result<UniqueFd> new_namespace() {
  UniqueFd opened;
  const Status made = elsewhere([&]() -> Status {
    if (unshare(CLONE_NEWNET) != 0) {
      if (errno == EPERM)
        return {Code::kPermissionDenied,
                "replay makes network namespaces, which this user may not do; run it as root, or as "
                "`unshare --user --map-root-user rueda bench replay ...` if that is allowed"};
      return {Code::kUnavailable, fmt::format("cannot make a network namespace: {}; check "
                                              "/proc/sys/user/max_net_namespaces",
                                              std::strerror(errno))};
    }
    opened = UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    return opened.is_open() ? Status::ok()
                            : Status(Code::kUnavailable, "cannot open /proc/thread-self/ns/net; mount /proc");
  });
  if (!made.is_ok()) return made;
  return opened;
}

// Waits until the program ends, and returns what it wrote to stderr.
std::string drain(int fd, Deadline deadline) {
  std::string text;
  std::array<char, 512> chunk;
  while (!deadline.is_past()) {
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, deadline.timeout_ms()) <= 0) continue;
    const ssize_t size = read(fd, chunk.data(), chunk.size());
    if (size <= 0) break;
    text.append(chunk.data(), static_cast<size_t>(size));
  }
  return text.substr(0, text.find('\n'));
}

Status run_program(const std::vector<std::string>& argv) {
  const char* path = getenv("PATH");
  const std::string places = std::string(path != nullptr ? path : "") + ":/usr/sbin:/sbin:/usr/bin:/bin";
  const Result<std::string> program = launch::find_program(argv.front(), places, "");
  if (!program.is_ok())
    return {
        Code::kUnavailable,
        fmt::format("replay needs the program {}; install iproute2 (apt install iproute2)", argv.front())};
  Result<launch::Pipe> pipe = launch::make_pipe();
  if (!pipe.is_ok()) return pipe.status();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);
  const Result<pid_t> pid = launch::spawn({.path = program.value(),
                                           .argv = argv,
                                           .env = env,
                                           .cwd = "",
                                           .in = null.get(),
                                           .out = null.get(),
                                           .err = pipe.value().write.get(),
                                           .death_signal = SIGKILL});
  if (!pid.is_ok()) return pid.status();
  pipe.value().write.reset();
  const std::string said = drain(pipe.value().read.get(), Deadline::after(kCommandLimit));
  int ended = 0;
  if (waitpid(pid.value(), &ended, WNOHANG) == 0) {  // it has only closed stderr, or the deadline has passed
    const Deadline last = Deadline::after(kSecond);
    while (waitpid(pid.value(), &ended, WNOHANG) == 0) {
      if (last.is_past()) kill(pid.value(), SIGKILL);
      usleep(1000);
    }
  }
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return Status::ok();
  return {Code::kUnavailable, fmt::format("`{}` failed ({}); the kernel needs veth, bridge and sch_tbf (slow "
                                          "pairs: sch_htb and cls_u32), and this user needs CAP_NET_ADMIN",
                                          fmt::join(argv, " "), said.empty() ? "it printed nothing" : said)};
}

Status set_congestion(const std::string& name) {
  const UniqueFd file(open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC));
  if (file.is_open() && write(file.get(), name.data(), name.size()) == std::ssize(name)) return Status::ok();
  if (errno == EPERM) {
    return {Code::kPermissionDenied,
            fmt::format("this user may not use congestion control {} here; choose one of "
                        "/proc/sys/net/ipv4/tcp_allowed_congestion_control, or add it there",
                        name)};
  }
  return {Code::kUnavailable, fmt::format("this kernel has no congestion control {} ({}); see "
                                          "/proc/sys/net/ipv4/tcp_available_congestion_control",
                                          name, std::strerror(errno))};
}

Status enter(int fd) {
  if (setns(fd, CLONE_NEWNET) == 0) return Status::ok();
  return {Code::kPermissionDenied,
          fmt::format("cannot enter a network namespace: {}; run as root", std::strerror(errno))};
}

}  // namespace

Result<NetworkNamespaces> NetworkNamespaces::make(int hosts, int64_t bits_per_s,
                                                  const std::string& congestion, const Faults& faults) {
  NetworkNamespaces namespaces;
  for (int host = -1; host < hosts; ++host) {
    Result<UniqueFd> made = new_namespace();
    if (!made.is_ok()) return made.status();
    if (host < 0) {
      namespaces.switch_ = std::move(made).value();
      continue;
    }
    namespaces.hosts_.push_back(std::move(made).value());
    namespaces.paths_.push_back(fmt::format("/proc/{}/fd/{}", getpid(), namespaces.hosts_.back().get()));
    const Status set = elsewhere([&] {
      Status status = enter(namespaces.hosts_.back().get());
      return status.is_ok() ? set_congestion(congestion) : status;
    });
    if (!set.is_ok()) return set;
  }
  for (const LinkCommand& command : link_commands(namespaces.paths_, bits_per_s, faults)) {
    const UniqueFd& where =
        command.host == kSwitch ? namespaces.switch_ : namespaces.hosts_[static_cast<size_t>(command.host)];
    const Status done = elsewhere([&] {
      Status status = enter(where.get());
      return status.is_ok() ? run_program(command.argv) : status;
    });
    if (!done.is_ok()) return done;
  }
  return namespaces;
}

Status enter_namespace(const std::string& path) {
  const UniqueFd opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.is_open())
    return {Code::kUnavailable,
            fmt::format("cannot open the network namespace {}: {}; its launcher has ended", path,
                        std::strerror(errno))};
  return enter(opened.get());
}

}  // namespace rueda::bench
