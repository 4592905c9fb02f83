#include "preflight/inspect.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/library.h"
#include "doctor/first_line.h"
#include "doctor/hardware.h"
#include "doctor/machine.h"
#include "doctor/python.h"
#include "rueda/base/handshake.h"
#include "rueda/base/release.h"
#include "rueda/store/hex.h"

namespace rueda::preflight {
namespace {

constexpr Nanos kPythonLimit = 20 * kSecond;
// Reads what the installer has noted. Importing the frameworks would take seconds.
constexpr const char* kPackages = R"(
import json, platform
from importlib import metadata
names = ("rueda-train", "torch", "tensorflow", "keras", "jax", "jaxlib", "numpy",
         "nvidia-nccl-cu12", "nvidia-nccl-cu13")
found = {"python": platform.python_version()}
for name in names:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
)";

// The hash of the file, so that two builds of one release are told apart.
std::string identity_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  constexpr std::string_view kKey = "rueda preflight";
  const auto digest = hmac_sha256(std::as_bytes(std::span(kKey)), std::as_bytes(std::span(text)));
  return store::to_hex(std::span(digest).first(8));
}

void inspect_library(HostFacts& facts, const std::string& own_path) {
  const Result<bench::Library> opened = bench::open_library(own_path);
  if (!opened.is_ok()) {
    facts.library_problem = opened.status().why;
    return;
  }
  facts.library_path = opened.value().path;
  facts.library_id = identity_of(facts.library_path);
  const auto about = nlohmann::json::parse(opened.value().describe(), nullptr, false);
  if (about.is_object()) facts.library_release = about.value("release", "unknown");
}

void inspect_python(HostFacts& facts, const std::string& own_path) {
  const Result<std::string> python = doctor::find_python(own_path);
  std::string text;
  if (!python.is_ok()) {
    facts.python_problem = python.status().why;
    return;
  }
  doctor::PythonProgram(python.value(), {"-c", kPackages}).read_all(Deadline::after(kPythonLimit), text);
  const auto found = nlohmann::json::parse(text, nullptr, false);
  if (!found.is_object()) {
    facts.python_problem = python.value() + " did not answer";
    return;
  }
  for (const auto& [name, version] : found.items())
    if (version.is_string()) facts.packages[name] = version.get<std::string>();
}

int64_t limit_of(__rlimit_resource what) {
  rlimit limit{};
  getrlimit(what, &limit);
  return limit.rlim_max == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit.rlim_max);
}

// Local ports that are not in use: the range that connections take them from, less the sockets that exist.
int64_t free_ports() {
  int64_t low = 0, high = -1;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  int64_t used = 0;
  std::ifstream sockets("/proc/net/sockstat");
  for (std::string line; std::getline(sockets, line);) {
    long long in_use = 0, orphan = 0, time_wait = 0;
    if (std::sscanf(line.c_str(), "TCP: inuse %lld orphan %lld tw %lld", &in_use, &orphan, &time_wait) == 3)
      used = in_use + orphan + time_wait;
  }
  return std::max<int64_t>(0, high - low + 1 - used);
}

bool can_listen() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return socket_fd.is_open() && bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0 &&
         listen(socket_fd.get(), 1) == 0;
}

void inspect_limits(HostFacts& facts) {
  const int64_t files = limit_of(RLIMIT_NOFILE);
  facts.open_files = files < 0 ? int64_t{1} << 30 : files;
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.shm_free_bytes = doctor::free_shm_bytes();
  facts.has_memfd = doctor::shared_memory_fault().empty();
  facts.free_ports = free_ports();
  facts.can_listen = can_listen();
}

void inspect_hardware(HostFacts& facts) {
  const char* setting = getenv("RUEDA_INTERFACE");
  facts.interface = doctor::interface_towards_others(setting == nullptr ? "" : setting);
  const doctor::NetworkCard card = doctor::read_network_card("", facts.interface);
  facts.card_mbit_per_s = card.mbit_per_s;
  facts.mtu = card.mtu;
  facts.numa_node = card.numa_node;
  facts.clock_source = doctor::read_clock_source("").current;
  facts.is_clock_synchronised = doctor::is_clock_synchronised();
  const doctor::NvidiaGpus gpus = doctor::read_nvidia_gpus("");
  facts.gpus = gpus.models;
  facts.gpu_driver = gpus.driver;
  facts.nccl = doctor::find_nccl();
}

}  // namespace

HostFacts inspect_host(const std::string& host, const std::string& own_path) {
  HostFacts facts;
  facts.host = host;
  facts.release = kRelease;
  inspect_library(facts, own_path);
  inspect_python(facts, own_path);
  utsname system{};
  uname(&system);
  facts.kernel = system.release;
  facts.cores = doctor::usable_cores();
  facts.memory_bytes = static_cast<int64_t>(doctor::usable_memory_bytes());
  inspect_limits(facts);
  inspect_hardware(facts);
  return facts;
}

}  // namespace rueda::preflight
