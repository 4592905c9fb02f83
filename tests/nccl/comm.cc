#include "comm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
#include <utility>

namespace rueda::fake_nccl {
namespace {

// No test waits longer; a wait that would never end becomes a failure.
constexpr int kLongestWaitMs = 60'000;

bool is_thread_of_engine() {
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return std::string_view(name.data()) == "rueda-engine";
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

template <class F>
bool wait_until(const F& is_it, int longest_ms = kLongestWaitMs) {
  for (int waited = 0; waited < longest_ms; ++waited) {
    if (is_it()) return true;
    sleep_ms(1);
  }
  return is_it();
}

uint64_t host_hash() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  const char* const given = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>()(given != nullptr ? given : name);
}

// Since this version ranks may share a GPU if they ask for it, and MIG instances count as GPUs.
bool knows_sharing() { return control().version >= 23000; }

bool may_share_gpus() {
  const char* const given = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return knows_sharing() && given != nullptr && std::string(given) == "1";
}

}  // namespace

const Cuda* cuda() {
  static const Cuda table = [] {
    Cuda found;
    Dl_info mine{};
    dladdr(reinterpret_cast<const void*>(&cuda), &mine);
    const std::string folder(mine.dli_fname, std::string_view(mine.dli_fname).rfind('/'));
    void* const driver = dlopen((folder + "/../fake_cuda/libcuda.so.1").c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) return found;
    const auto get = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(driver, name));
    };
    get("cuLaunchHostFunc", found.launch_host_func);
    get("cuCtxGetCurrent", found.get_current);
    get("cuDeviceGetCount", found.get_count);
    get("cuDevicePrimaryCtxRetain", found.retain_primary);
    get("cuDevicePrimaryCtxRelease_v2", found.release_primary);
    get("cuDeviceGetUuid", found.get_uuid);
    get("cuDeviceGetUuid_v2", found.get_instance_uuid);
    return found;
  }();
  return table.launch_host_func == nullptr ? nullptr : &table;
}

bool Cuda::current_uuid(unsigned char* uuid) const {
  void* current = nullptr;
  int devices = 0;
  if (get_current(&current) != 0 || current == nullptr || get_count(&devices) != 0) return false;
  for (int device = 0; device < devices; ++device) {
    void* primary = nullptr;
    if (retain_primary(&primary, device) != 0) return false;
    release_primary(device);
    if (primary == current) return (knows_sharing() ? get_instance_uuid : get_uuid)(uuid, device) == 0;
  }
  return false;
}

Control& control() {
  static Control* const one = [] {
    // Never destroyed, because threads may outlive static objects, and not on the heap: LeakSanitizer would
    // find it once this library has been unloaded.
    alignas(Control) static std::array<std::byte, sizeof(Control)> place;
    auto* made = new (place.data()) Control;
    if (const char* const given = std::getenv("FAKE_NCCL_VERSION")) made->version = std::atoi(given);
    return made;
  }();
  return *one;
}

Comm::Comm(std::string name, int me, int size)
    : name_(std::move(name)), me_(me), size_(size), wire_(me, size) {
  ++control().communicators;
  ++control().starts;
}

Comm::~Comm() {
  wire_.abort();
  if (background_.joinable()) {
    if (background_.get_id() == std::this_thread::get_id())
      background_.detach();
    else
      background_.join();
  }
  --control().communicators;
}

void Comm::begin(const unsigned char* uuid) {
  Hello mine{.rank = me_, .version = control().version, .host_hash = host_hash(), .uuid = {}};
  std::memcpy(mine.uuid, uuid, sizeof(mine.uuid));
  is_busy_ = true;
  background_ = std::thread([this, mine] { start_up(mine); });
}

void Comm::start_up(Hello mine) {
  std::vector<Hello> hellos(static_cast<size_t>(size_));
  hellos[static_cast<size_t>(me_)] = mine;
  while (control().never_ready && !wire_.is_aborted()) sleep_ms(1);
  switch (wire_.connect(name_, hellos)) {
    case Wait::kAborted:
      fail(nccl::kInternalError, "aborted");
      break;
    case Wait::kLost:
      fail(nccl::kRemoteError, "a member was lost while the communicator began");
      break;
    case Wait::kDone:
      if (const nccl::ResultCode code = check(hellos); code != nccl::kSuccess)
        fail(code, code == nccl::kInvalidUsage ? "Duplicate GPU detected, or different versions" : "planted");
  }
  is_busy_ = false;
}

nccl::ResultCode Comm::check(const std::vector<Hello>& hellos) {
  for (const Hello& one : hellos) {
    if (one.version != hellos.front().version) return nccl::kInvalidUsage;
    for (const Hello& other : hellos) {
      const bool is_same = one.rank != other.rank && one.host_hash == other.host_hash &&
                           std::memcmp(one.uuid, other.uuid, sizeof(one.uuid)) == 0;
      if (is_same && !may_share_gpus()) return nccl::kInvalidUsage;
    }
  }
  return is_failing() ? static_cast<nccl::ResultCode>(control().fail_init.load()) : nccl::kSuccess;
}

nccl::ResultCode Comm::state() const {
  if (error_ != nccl::kSuccess) return static_cast<nccl::ResultCode>(error_.load());
  return is_busy_ || (is_finalizing_ && open_ > 0) ? nccl::kInProgress : nccl::kSuccess;
}

std::string Comm::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

void Comm::fail(nccl::ResultCode code, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (error_ != nccl::kSuccess) return;
  last_error_ = why;
  error_ = code;
}

nccl::ResultCode Comm::launch(std::vector<Op> ops, void* stream) {
  if (state() != nccl::kSuccess) return nccl::kInvalidUsage;
  if (is_failing() && control().fail_group != 0)
    return static_cast<nccl::ResultCode>(control().fail_group.load());
  if (background_.joinable()) background_.join();
  if (!is_thread_of_engine()) ++control().groups_elsewhere;
  is_busy_ = true;
  ++open_;
  auto* work = new Work{shared_from_this(), std::move(ops)};
  background_ = std::thread([this, work, stream] {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    ++control().groups;
    control().operations += static_cast<int>(work->ops.size());
    if (cuda()->launch_host_func(stream, &Comm::run_work, work) != 0)
      fail(nccl::kUnhandledCudaError, "the group cannot be enqueued");
    is_busy_ = false;
  });
  return nccl::kInProgress;
}

void Comm::run_work(void* argument) {
  const std::unique_ptr<Work> work(static_cast<Work*>(argument));
  Comm& comm = *work->comm;
  ++comm.running_;
  if (!comm.wire_.is_aborted()) comm.run(work->ops);
  --comm.running_;
  --comm.open_;
}

void Comm::run(const std::vector<Op>& ops) {
  std::string mistake;
  int me = me_;
  size_t bytes = 0;
  for (const Op& op : ops) bytes += op.count * size_of(op.type);
  const size_t us =
      static_cast<size_t>(control().us_per_group) + (bytes >> 10) * static_cast<size_t>(control().us_per_kib);
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  if (control().lost_member.compare_exchange_strong(me, -1)) {
    wire_.close();
    return;
  }
  if (error_ == nccl::kSuccess) {
    const Wait how = Group(wire_, me_, size_).run(ops, sequence_, mistake);
    if (how != Wait::kLost) return;
    fail(mistake.empty() ? nccl::kRemoteError : nccl::kInvalidUsage,
         mistake.empty() ? "a member was lost" : mistake);
  }
  // As a kernel of NCCL does, it stays until the communicator is aborted.
  wait_until([this] { return wire_.is_aborted(); });
}

void Comm::abort() {
  ++control().aborts;
  wire_.abort();
  if (background_.joinable()) background_.join();
  wait_until([this] { return running_ == 0; });
  wire_.close();  // what has not begun to run finds the abort, and uses no connection
}

}  // namespace rueda::fake_nccl
