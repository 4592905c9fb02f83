// PMIx through libpmix.so.2, which is loaded when needed. The few types of its ABI (stable since version 2,
// and equal in 4 and 5) are declared here, because the library is usually installed without its headers.
#include <dlfcn.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "rueda/store/launcher_space.h"

namespace rueda::store {
namespace {

constexpr int kSuccess = 0;
constexpr int kUnreachable = -25;
constexpr int kOperationSucceeded = -157;  // done at once, without a callback
constexpr uint32_t kWildcardRank = UINT32_MAX - 1;
constexpr uint16_t kTypeBool = 1, kTypeString = 3, kTypeUint16 = 13, kTypeUint32 = 14;
constexpr uint8_t kScopeGlobal = 3;

struct Proc {
  char nspace[256];
  uint32_t rank;
};

struct Value {
  uint16_t type;
  union {
    bool flag;
    char* string;
    uint16_t uint16;
    uint32_t uint32;
    timeval time;
    struct {
      char *name, *value;
      char separator;
    } envar;  // the largest member of the original, which determines the size of the union
  } data;
};

struct Info {
  char key[512];
  uint32_t flags;
  Value value;
};
static_assert(sizeof(Value) == 32 && sizeof(Info) == 552, "the layout of PMIx on 64-bit machines");

struct Library {
  int (*init)(Proc*, const Info*, size_t);
  int (*finalize)(const Info*, size_t);
  int (*put)(uint8_t scope, const char* key, Value*);
  int (*commit)();
  int (*fence)(const Proc*, size_t, const Info*, size_t, void (*done)(int, void*), void*);
  int (*get)(const Proc*, const char* key, const Info*, size_t, Value**);
  const char* (*error_text)(int);
};

template <class F>
bool load(void* handle, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(handle, name));
  return function != nullptr;
}

// Open MPI 5 brings a PMIx of its own. The one of the system also reaches its server, but the server then
// prints errors, because the two pack some values in different ways.
std::vector<std::string> places_of_library() {
  std::vector<std::string> places;
  const char* prefix = std::getenv("PMIX_PREFIX");
  if (prefix != nullptr && *prefix != '\0')
    for (const char* folder : {"/lib/openmpi/", "/lib64/openmpi/", "/lib/", "/lib64/"})
      places.push_back(std::string(prefix) + folder + "libpmix.so.2");
  places.emplace_back("libpmix.so.2");
  return places;
}

Result<Library> load_library() {
  // Never closed, because the library keeps a thread of its own.
  void* handle = nullptr;
  for (const std::string& place : places_of_library())
    if (handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) break;
  if (handle == nullptr) return Status(Code::kUnavailable, "libpmix.so.2 cannot be loaded");
  Library library{};
  if (!load(handle, "PMIx_Init", library.init) || !load(handle, "PMIx_Finalize", library.finalize) ||
      !load(handle, "PMIx_Put", library.put) || !load(handle, "PMIx_Commit", library.commit) ||
      !load(handle, "PMIx_Fence_nb", library.fence) || !load(handle, "PMIx_Get", library.get) ||
      !load(handle, "PMIx_Error_string", library.error_text))
    return Status(Code::kUnavailable, "libpmix.so.2 lacks a function");
  return library;
}

// It outlives a fence that was given up, because the callback may still come.
struct FenceState {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  int status = kSuccess;
  Info collect{};
  Proc everyone{};
};

void on_fence_done(int status, void* data) {
  const std::unique_ptr<std::shared_ptr<FenceState>> state(static_cast<std::shared_ptr<FenceState>*>(data));
  const std::scoped_lock lock((*state)->mutex);
  (*state)->is_done = true;
  (*state)->status = status;
  (*state)->changed.notify_all();
}

class PmixSpace final : public LauncherSpace {
 public:
  explicit PmixSpace(const Library& library) : library_(library) {}

  Status begin() {
    const int error = library_.init(&self_, nullptr, 0);
    if (error == kUnreachable) return fault("PMIx_Init", error, "no PMIx server answers this process");
    if (error != kSuccess) return fault("PMIx_Init", error, "");
    facts_.rank = static_cast<Rank>(self_.rank);
    facts_.job = self_.nspace;
    facts_.size = number("pmix.job.size", kWildcardRank);
    facts_.local_size = number("pmix.local.size", kWildcardRank);
    facts_.local_rank = number("pmix.lrank", self_.rank);
    return Status::ok();
  }

  [[nodiscard]] const LauncherFacts& facts() const override { return facts_; }

  Status put(const std::string& key, const std::string& text, Deadline) override {
    Value value{};
    value.type = kTypeString;
    std::string copy = text;
    value.data.string = copy.data();
    if (const int error = library_.put(kScopeGlobal, key.c_str(), &value); error != kSuccess)
      return fault("PMIx_Put", error, key);
    const int error = library_.commit();
    return error == kSuccess ? Status::ok() : fault("PMIx_Commit", error, key);
  }

  Status fence(Deadline deadline) override {
    auto state = std::make_shared<FenceState>();
    std::strcpy(state->collect.key, "pmix.collect");
    state->collect.value.type = kTypeBool;
    state->collect.value.data.flag = true;
    std::memcpy(state->everyone.nspace, self_.nspace, sizeof(self_.nspace));
    state->everyone.rank = kWildcardRank;
    auto held = std::make_unique<std::shared_ptr<FenceState>>(state);
    const int error = library_.fence(&state->everyone, 1, &state->collect, 1, on_fence_done, held.get());
    if (error == kOperationSucceeded) return Status::ok();
    if (error != kSuccess) return fault("PMIx_Fence", error, "");
    // From here on, the callback owns it.
    [[maybe_unused]] const auto* released = held.release();
    std::unique_lock lock(state->mutex);
    const auto limit = std::chrono::milliseconds(deadline.timeout_ms());
    if (!state->changed.wait_for(lock, limit, [&] { return state->is_done; }))
      return {Code::kTimeout, "not all ranks reached the PMIx fence in time; a rank is late or has ended"};
    return state->status == kSuccess ? Status::ok() : fault("PMIx_Fence", state->status, "");
  }

  Result<std::string> get(const std::string& key, Rank from, Deadline) override {
    Value* value = nullptr;
    const Proc peer = proc(static_cast<uint32_t>(from));
    const int error = library_.get(&peer, key.c_str(), nullptr, 0, &value);
    if (error != kSuccess || value == nullptr) return fault("PMIx_Get", error, key);
    std::string text;
    if (value->type == kTypeString && value->data.string != nullptr) {
      text = value->data.string;
      std::free(value->data.string);
    }
    std::free(value);
    return text;
  }

  Status finish(Deadline) override {
    const int error = library_.finalize(nullptr, 0);
    return error == kSuccess ? Status::ok() : fault("PMIx_Finalize", error, "");
  }

 private:
  [[nodiscard]] Proc proc(uint32_t rank) const {
    Proc result{};
    std::memcpy(result.nspace, self_.nspace, sizeof(result.nspace));
    result.rank = rank;
    return result;
  }

  Rank number(const char* key, uint32_t of_rank) {
    Value* value = nullptr;
    const Proc peer = proc(of_rank);
    if (library_.get(&peer, key, nullptr, 0, &value) != kSuccess || value == nullptr) return -1;
    Rank result = -1;
    if (value->type == kTypeUint32) result = static_cast<Rank>(value->data.uint32);
    if (value->type == kTypeUint16) result = value->data.uint16;
    std::free(value);
    return result;
  }

  [[nodiscard]] Status fault(const std::string& call, int error, const std::string& about) const {
    return {Code::kUnavailable, "the launcher's PMIx space failed: " + call +
                                    (about.empty() ? "" : " (" + about + ")") + " gave " +
                                    std::to_string(error) + ", " + library_.error_text(error) + kSpaceAdvice};
  }

  const Library library_;
  Proc self_{};
  LauncherFacts facts_;
};

}  // namespace

Result<std::unique_ptr<LauncherSpace>> open_pmix_space() {
  const Result<Library> library = load_library();
  if (!library.is_ok()) return library.status();
  auto space = std::make_unique<PmixSpace>(library.value());
  if (Status status = space->begin(); !status.is_ok()) return status;
  return std::unique_ptr<LauncherSpace>(std::move(space));
}

}  // namespace rueda::store
