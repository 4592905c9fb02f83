#include "doctor/fabric.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "doctor/first_line.h"
#include "doctor/transports.h"
#include "rueda/base/transport_names.h"

namespace rueda::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kMajor = 1, kMinor = 13;  // what the transport asks for

// The first of the transports, best first, that is allowed.
std::string first_allowed(std::string_view transports, bool is_between_hosts) {
  for (const std::string_view name : kTransportNames)
    if (names(transports, name) && !(is_between_hosts && name == "shm")) return std::string(name);
  return "none";
}

bool is_too_old(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2 || major != kMajor || minor < kMinor;
}

void add_problems_of_ucx(Section& section, bool has_active_port, const UcxFound& ucx,
                         std::string_view ucx_tls) {
  if (ucx.version.empty())
    return section.fail(
        "RUEDA_TRANSPORTS names ucx, but libucp.so.0 cannot be loaded; install UCX 1.13 or later (Debian: "
        "libucx0), or remove ucx.");
  if (is_too_old(ucx.version))
    return section.fail(fmt::format(
        "RUEDA_TRANSPORTS names ucx, but the installed UCX is version {}; 1.13 or a later 1.x is needed.",
        ucx.version));
  if (!has_active_port && ucx_tls.empty())
    section.advise(
        "RUEDA_TRANSPORTS names ucx, but no port of an RDMA card is active here, so ucx reaches only ranks "
        "of "
        "this host; use shm,tcp");
}

}  // namespace

std::vector<RdmaPort> rdma_ports(const std::string& folder) {
  std::vector<RdmaPort> found;
  for (const fs::path& card : sorted_entries(folder)) {
    for (const fs::path& port : sorted_entries(card / "ports")) {
      const std::string state = first_line(port / "state");  // "4: ACTIVE"
      const size_t text = state.find(": ");
      found.push_back({.card = card.filename(),
                       .port = port.filename(),
                       .state = text == std::string::npos ? state : state.substr(text + 2),
                       .rate = first_line(port / "rate"),
                       .link_layer = first_line(port / "link_layer")});
    }
  }
  return found;
}

UcxFound find_ucx() {
  void* library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {.version = "", .why_not = dlerror()};
  using GetVersion = void (*)(unsigned*, unsigned*, unsigned*);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "ucp_get_version"));
  if (get_version == nullptr) return {.version = "", .why_not = "it has no ucp_get_version"};
  unsigned major = 0, minor = 0, release = 0;
  get_version(&major, &minor, &release);
  return {.version = fmt::format("{}.{}.{}", major, minor, release), .why_not = ""};
}

Section describe_fabric(const std::vector<RdmaPort>& ports, const UcxFound& ucx, std::string_view transports,
                        std::string_view ucx_tls) {
  Section section{.title = "fabric", .facts = {}, .problems = {}};
  for (const RdmaPort& port : ports)
    section.add(fmt::format("{} port {}", port.card, port.port),
                fmt::format("{}, {}, {}", port.state, port.rate, port.link_layer));
  if (ports.empty()) section.add("RDMA cards", "none in /sys/class/infiniband");
  section.add("UCX", ucx.version.empty() ? "not available: " + ucx.why_not : ucx.version);
  section.add("within a host", first_allowed(transports, false));
  section.add("between hosts", first_allowed(transports, true));
  const bool has_active_port = std::ranges::find(ports, "ACTIVE", &RdmaPort::state) != ports.end();
  if (names(transports, "ucx"))
    add_problems_of_ucx(section, has_active_port, ucx, ucx_tls);
  else if (has_active_port && !ucx.version.empty() && !is_too_old(ucx.version))
    section.add("not used", "the RDMA cards; RUEDA_TRANSPORTS=shm,ucx on all ranks would use them");
  return section;
}

Section examine_fabric(std::string_view transports) {
  const char* tls = std::getenv("UCX_TLS");
  return describe_fabric(rdma_ports("/sys/class/infiniband"), find_ucx(), transports,
                         tls == nullptr ? "" : tls);
}

}  // namespace rueda::doctor
