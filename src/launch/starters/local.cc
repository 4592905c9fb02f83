#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>

#include "launch/processes.h"
#include "launch/starters/spawn_agent.h"
#include "launch/starters/starter.h"

extern char** environ;

namespace rueda::launch {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw = nullptr;
  if (address->sa_family == AF_INET) raw = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) raw = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (raw == nullptr) return {};
  inet_ntop(address->sa_family, raw, text.data(), text.size());
  return text.data();
}

std::set<std::string> own_addresses() {
  std::set<std::string> addresses = {"127.0.0.1", "::1"};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    if (entry->ifa_addr != nullptr) addresses.insert(text_of(entry->ifa_addr));
  freeifaddrs(list);
  addresses.erase("");
  return addresses;
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> env;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);
  return env;
}

Result<AgentProcess> spawn_agent(const std::string& path, const std::vector<std::string>& argv,
                                 int death_signal, std::vector<std::string> env, bool is_aside) {
  Result<Pipe> in = make_pipe();
  Result<Pipe> out = make_pipe();
  Result<Pipe> err = make_pipe();
  for (const Result<Pipe>* pipe : {&in, &out, &err})
    if (!pipe->is_ok()) return pipe->status();
  Result<pid_t> pid = spawn({.path = path,
                             .argv = argv,
                             .env = std::move(env),
                             .cwd = "",
                             .in = in.value().read.get(),
                             .out = out.value().write.get(),
                             .err = err.value().write.get(),
                             .is_aside = is_aside,
                             .death_signal = death_signal});
  if (!pid.is_ok()) return pid.status();
  AgentProcess agent{.pid = pid.value(),
                     .in = std::move(in.value().write),
                     .out = std::move(out.value().read),
                     .err = std::move(err.value().read),
                     .is_child = !is_aside};
  for (const UniqueFd* fd : {&agent.in, &agent.out, &agent.err}) set_nonblocking(fd->get());
  return agent;
}

// The path in /proc works even while a new version is being installed over the running one. The agent gets no
// parent-death signal: it notices our end on its stdin, and then gives its ranks time to clean up.
Result<AgentProcess> start_local_agent() { return spawn_agent("/proc/self/exe", {"rueda", "agent"}, 0); }

bool is_own_address(const std::string& address) { return own_addresses().contains(address); }

bool is_this_machine(const std::string& name) {
  std::array<char, 256> own{};
  gethostname(own.data(), own.size() - 1);
  const std::string own_name = own.data();
  if (name == "localhost" || name == own_name || name == own_name.substr(0, own_name.find('.'))) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0)
    return false;  // probably an alias in the configuration of ssh
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const std::set<std::string> addresses = own_addresses();
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
    if (addresses.contains(text_of(entry->ai_addr))) return true;
  return false;
}

}  // namespace rueda::launch
