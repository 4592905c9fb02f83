#include "rueda/capi/state.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace rueda::capi {
namespace {

struct State {
  std::mutex init_mutex;  // one init or shutdown at a time
  std::mutex mutex;       // guards engine
  std::shared_ptr<runtime::Engine> engine;
  runtime::MeetingPlace place;
  bool has_hooks = false;
  int64_t next_handle = 1;
};

// Leaked on purpose: threads and handles may outlive static destruction.
State& state() {
  static auto* const instance = new State;
  return *instance;
}

// A forked child has neither the engine's thread nor a right to the parent's connections. It must not take a
// lock that another thread held at the fork, hence a flag of its own.
std::atomic<bool> g_is_forked_child{false};

void on_fork_in_child() { g_is_forked_child.store(true); }

thread_local std::string t_error;
thread_local std::string t_text;

}  // namespace

std::shared_ptr<runtime::Engine> engine() {
  if (g_is_forked_child.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(state().mutex);
  return state().engine;
}

Status init(runtime::InitOptions options) {
  if (g_is_forked_child) {
    return {Code::kUnavailable,
            "this process was forked from an initialized one; start it afresh (for instance with "
            "the spawn method of multiprocessing) to use rueda in it."};
  }
  State& s = state();
  const std::lock_guard lock(s.init_mutex);
  if (engine()) return Status::ok();
  if (!std::exchange(s.has_hooks, true)) {  // before anything that a forked child must not inherit
    std::atexit(shutdown);
    pthread_atfork(nullptr, nullptr, on_fork_in_child);
  }
  Result<runtime::Session> session =
      runtime::bootstrap(s.place, std::move(options), [](const char* name) { return std::getenv(name); });
  if (!session.is_ok()) return session.status();
  session.value().first_handle = s.next_handle;
  auto started = std::make_shared<runtime::Engine>(std::move(session).value());
  const std::lock_guard engine_lock(s.mutex);
  s.engine = std::move(started);
  return Status::ok();
}

void shutdown() {
  if (g_is_forked_child) return;
  State& s = state();
  const std::lock_guard lock(s.init_mutex);
  const std::shared_ptr<runtime::Engine> leaving = engine();
  if (!leaving) return;
  leaving->shutdown();
  s.next_handle = leaving->operations().next_handle();
  const std::lock_guard engine_lock(s.mutex);
  s.engine.reset();
}

int fail(const Status& why) {
  t_error = why.why;
  return static_cast<int>(why.code);
}

int fail_not_initialized() {
  return fail({Code::kNotInitialized, "Horovod has not been initialized; use hvd.init()."});
}

const char* last_error() { return t_error.c_str(); }

const char* keep_text(std::string text) {
  t_text = std::move(text);
  return t_text.c_str();
}

}  // namespace rueda::capi
