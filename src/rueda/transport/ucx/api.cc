#include "rueda/transport/ucx/api.h"

#include <dlfcn.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <span>

namespace rueda::transport::ucx {
namespace {

constexpr const char* kLibrary = "libucp.so.0";
constexpr const char* kSignalsLibrary = "libucs.so.0";

Status unavailable(const std::string& what) {
  return {Code::kUnavailable, "RUEDA_TRANSPORTS names ucx, but " + what +
                                  "; install UCX 1.13 or later on this host (Debian: libucx0), or remove ucx "
                                  "from RUEDA_TRANSPORTS."};
}

template <class F>
bool load(void* handle, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(handle, name));
  return function != nullptr;
}

bool load_functions(void* handle, Api& api) {
  return load(handle, "ucp_get_version", api.get_version) &&
         load(handle, "ucs_status_string", api.status_string) &&
         load(handle, "ucp_config_read", api.config_read) &&
         load(handle, "ucp_config_modify", api.config_modify) &&
         load(handle, "ucp_config_release", api.config_release) &&
         load(handle, "ucp_init_version", api.init_version) && load(handle, "ucp_cleanup", api.cleanup) &&
         load(handle, "ucp_worker_create", api.worker_create) &&
         load(handle, "ucp_worker_destroy", api.worker_destroy) &&
         load(handle, "ucp_worker_get_address", api.worker_get_address) &&
         load(handle, "ucp_worker_release_address", api.worker_release_address) &&
         load(handle, "ucp_worker_progress", api.worker_progress) &&
         load(handle, "ucp_worker_get_efd", api.worker_get_efd) &&
         load(handle, "ucp_worker_arm", api.worker_arm) &&
         load(handle, "ucp_worker_set_am_recv_handler", api.worker_set_am_recv_handler) &&
         load(handle, "ucp_ep_create", api.ep_create) && load(handle, "ucp_ep_close_nbx", api.ep_close_nbx) &&
         load(handle, "ucp_am_send_nbx", api.am_send_nbx) &&
         load(handle, "ucp_am_recv_data_nbx", api.am_recv_data_nbx) &&
         load(handle, "ucp_am_data_release", api.am_data_release) &&
         load(handle, "ucp_request_free", api.request_free);
}

Result<const Api*> load_library() {
  static Api api{};
  // Whoever has loaded UCX before (an MPI, for example) has also decided about its signal handlers.
  const bool was_loaded = dlopen(kSignalsLibrary, RTLD_NOW | RTLD_NOLOAD) != nullptr;
  // Never closed, because the library keeps threads and hooks of its own.
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return unavailable("the library cannot be loaded (" + std::string(dlerror()) + ")");
  // Loading puts handlers on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGHUP. This puts the former ones back. The
  // configuration cannot do it: these settings are read from the environment while the library is loaded.
  void (*disable_signals)() = nullptr;
  if (!was_loaded && load(handle, "ucs_debug_disable_signals", disable_signals)) disable_signals();
  unsigned major = 0, minor = 0, release = 0;
  if (load(handle, "ucp_get_version", api.get_version)) api.get_version(&major, &minor, &release);
  if (Status status = check_version(major, minor, release); !status.is_ok()) return status;
  if (!load_functions(handle, api)) return unavailable(std::string(kLibrary) + " lacks a function");
  return static_cast<const Api*>(&api);
}

// Whether a value of UCX_TLS names one of these. UCX takes the words of the list for patterns.
bool allows(std::string_view transports, std::span<const char* const> names) {
  const bool is_negated = transports.starts_with('^');
  if (is_negated) transports.remove_prefix(1);
  const auto is_one = [&](std::string_view word) {
    const std::string pattern(word);
    return std::ranges::any_of(names,
                               [&](const char* name) { return fnmatch(pattern.c_str(), name, 0) == 0; });
  };
  while (true) {
    const size_t comma = transports.find(',');
    if (is_one(transports.substr(0, comma))) return !is_negated;
    if (comma == std::string_view::npos) return is_negated;
    transports.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<const Api*> load_api() {
  static const Result<const Api*> loaded = load_library();
  return loaded;
}

Status check_version(unsigned major, unsigned minor, unsigned release) {
  if (major == kMajor && minor >= kMinor) return Status::ok();
  const std::string version =
      std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  return unavailable("the installed UCX is version " + version + ", and 1.13 or a later 1.x is needed");
}

bool may_share_memory(std::string_view transports) {
  return allows(transports, std::array{"all", "sm", "shm", "mm", "posix", "sysv", "xpmem"});
}

bool may_use_tcp(std::string_view transports) { return allows(transports, std::array{"all", "tcp"}); }

std::string describe(const Api& api, Code8 code) { return api.status_string(code); }

}  // namespace rueda::transport::ucx
