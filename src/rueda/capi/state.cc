#include "rueda/capi/state.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/base/config.h"
#include "rueda/base/log.h"
#include "rueda/base/setting_names.h"
#include "rueda/capi/forks.h"
#include "rueda/capi/metrics_port.h"
#include "rueda/capi/observed.h"
#include "rueda/status/stop_file.h"

namespace rueda::capi {
namespace {

struct State {
  std::mutex init_mutex;  // one init or shutdown at a time
  std::mutex mutex;       // guards engine
  std::shared_ptr<runtime::Engine> engine;
  runtime::RendezvousPoint rendezvous;
  bool has_hooks = false;
  bool has_mpi_hook = false;
  int64_t next_handle = 1;
  std::shared_ptr<trace::Timeline> timeline = trace::make_timeline();  // one file for all epochs
  bool has_ended_well = false;  // every rank left the last epoch by an orderly shutdown
  std::mutex arena_mutex;
  std::shared_ptr<memory::Arena> arena;
  Status arena_status;
  std::mutex detached_mutex;
  std::map<void*, runtime::OwnedMemory> detached;  // on devices
  // In a forked child: copies of the arenas of its parent.
  std::vector<std::shared_ptr<memory::Arena>> inherited;
};

// Never freed, because threads and handles may outlive static destruction.
State& state() {
  static auto* const instance = new State;
  return *instance;
}

void memory_before_fork() {
  state().arena_mutex.lock();
  for (const auto& one : state().inherited) one->before_fork();
  if (state().arena) state().arena->before_fork();
}

void memory_after_fork_in_parent() {
  for (const auto& one : state().inherited) one->after_fork_in_parent();
  if (state().arena) state().arena->after_fork_in_parent();
  state().arena_mutex.unlock();
}

// The child allocates nothing from the arena of its parent any more. It makes an arena of its own.
void memory_after_fork_in_child() {
  for (const auto& one : state().inherited) one->after_fork_in_child();
  if (state().arena) {
    state().arena->after_fork_in_child();
    state().inherited.push_back(std::move(state().arena));
    state().arena.reset();
  }
  state().arena_mutex.unlock();
}

const memory::Arena* holder_of(const void* address) {
  const State& s = state();
  if (s.arena && s.arena->memory().holds(address, 1)) return s.arena.get();
  for (const auto& one : s.inherited)
    if (one->memory().holds(address, 1)) return one.get();
  return nullptr;
}

// The store is kept until here, because a process may join again, and after a failure the other ranks must
// still read the cause in it.
void at_exit() {
  shutdown();
  if (is_forked_child()) return;
  State& s = state();
  const std::lock_guard lock(s.init_mutex);
  if (s.has_ended_well) store::end_file_run(s.rendezvous.rendezvous().lease);
}

// Registered once MPI is initialised, so that it runs before MPI's own clean-up.
void finalize_mpi() {
  shutdown();
  if (is_forked_child()) return;
  State& s = state();
  const std::lock_guard lock(s.init_mutex);
  // After a failure other ranks may not come, and MPI_Finalize would wait for them.
  if (s.has_ended_well && s.rendezvous.mpi()) s.rendezvous.mpi()->finish();
}

constexpr const char* kForked =
    "This process was forked from one that had initialized rueda, and the engine does not survive a fork; "
    "start processes that use collectives with the \"spawn\" method.";

thread_local std::string t_error;
thread_local bool t_is_in_init = false;  // handlers of signals may run in the middle of it
thread_local std::string t_text;

// `rueda run` has said it before it started the ranks; other launchers know nothing of our settings.
void warn_of_misspelt_settings(const store::GetEnv& get_env) {
  if (store::is_below_rueda_run(get_env)) return;
  std::vector<std::pair<std::string, std::string>> variables;
  for (const char* const* entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text(*entry); text.starts_with("RUEDA_")) {
      const size_t equals = std::min(text.find('='), text.size() - 1);
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  for (const std::string& sentence : misspelt_settings(variables)) RUEDA_LOG(kWarning, sentence);
}

}  // namespace

const runtime::InitWait& init_wait() { return state().rendezvous.wait(); }

std::shared_ptr<runtime::Engine> engine() {
  if (is_forked_child()) return nullptr;
  const std::lock_guard lock(state().mutex);
  return state().engine;
}

void keep_detached(runtime::OwnedMemory memory) {
  const std::lock_guard lock(state().detached_mutex);
  void* const address = memory.get();
  state().detached.emplace(address, std::move(memory));
}

bool release_detached(void* memory) {
  runtime::OwnedMemory last;  // freed after the lock is released
  const std::lock_guard lock(state().detached_mutex);
  const auto found = state().detached.find(memory);
  if (found == state().detached.end()) return false;
  last = std::move(found->second);
  state().detached.erase(found);
  return true;
}

Result<std::shared_ptr<memory::Arena>> arena() {
  State& s = state();
  const std::lock_guard lock(s.arena_mutex);
  if (s.arena) return s.arena;
  if (!s.arena_status.is_ok()) return s.arena_status;
  const Result<Config> config = parse_config([](const char* name) { return std::getenv(name); });
  if (!config.is_ok()) return config.status();
  const auto bytes = static_cast<size_t>(config.value().arena_bytes);
  Result<std::unique_ptr<memory::Arena>> made =
      memory::Arena::create(bytes != 0 ? bytes : memory::default_arena_bytes());
  if (!made.is_ok()) return s.arena_status = made.status();
  s.arena = std::move(made).value();
  [[maybe_unused]] static const int registered =
      pthread_atfork(memory_before_fork, memory_after_fork_in_parent, memory_after_fork_in_child);
  return s.arena;
}

bool is_shared_buffer(const void* address) {
  const std::lock_guard lock(state().arena_mutex);
  return holder_of(address) != nullptr;
}

bool release_shared_buffer(void* buffer) {
  const std::lock_guard lock(state().arena_mutex);
  auto* const arena = const_cast<memory::Arena*>(holder_of(buffer));
  return arena != nullptr && arena->release(buffer);
}

void trim_shared_buffers() {
  const std::lock_guard lock(state().arena_mutex);
  if (state().arena) state().arena->trim();
}

Status init(runtime::InitOptions options) {
  if (is_forked_child()) return {Code::kUnavailable, kForked};
  if (t_is_in_init) return {Code::kInternal, "rueda_init was called by a function that rueda_init calls."};
  State& s = state();
  const std::lock_guard lock(s.init_mutex);
  if (engine()) return Status::ok();
  if (!std::exchange(s.has_hooks, true)) {  // before there is anything that a forked child must not inherit
    std::atexit(at_exit);
    watch_forks();
  }
  s.has_ended_well = false;
  const Result<std::shared_ptr<memory::Arena>> shared = arena();
  if (shared.is_ok())
    options.arena = shared.value();
  else
    RUEDA_LOG(kInfo, "no shared buffers: " + shared.status().why);  // tensors are then allocated elsewhere
  // Before the ranks meet: `rueda stacks` also explains an init that hangs.
  const auto get_env = [](const char* name) -> const char* { return std::getenv(name); };
  if (const Result<Config> config = parse_config(get_env); config.is_ok()) start_endpoint(config.value());
  t_is_in_init = true;
  Result<runtime::Session> session = runtime::bootstrap(s.rendezvous, std::move(options), get_env);
  s.rendezvous.watch({});
  t_is_in_init = false;
  if (s.rendezvous.mpi() && !std::exchange(s.has_mpi_hook, true)) std::atexit(finalize_mpi);
  if (!session.is_ok()) {
    stop_endpoint();
    return session.status();
  }
  session.value().first_handle = s.next_handle;
  if (const char* const file = get_env(status::kStopFileVariable)) session.value().stop_file = file;
  session.value().timeline = s.timeline;
  session.value().meters = meters();
  session.value().show_stacks = log_stacks;
  Result<std::shared_ptr<runtime::Engine>> started = runtime::Engine::start(std::move(session).value());
  if (!started.is_ok()) {
    stop_endpoint();
    return started.status();
  }
  {
    const std::lock_guard engine_lock(s.mutex);
    s.engine = std::move(started).value();
  }
  if (engine()->session().me == 0) warn_of_misspelt_settings(get_env);
  start_metrics_port(engine()->session(), s.rendezvous.rendezvous().secret);
  return Status::ok();
}

void shutdown() {
  if (is_forked_child()) return forget_inherited();
  if (t_is_in_init) return;
  State& s = state();
  const std::lock_guard lock(s.init_mutex);
  const std::shared_ptr<runtime::Engine> leaving = engine();
  if (!leaving) return;
  leaving->shutdown();
  s.next_handle = leaving->operations().next_handle();
  s.has_ended_well = leaving->health().code == Code::kShutDown;
  const runtime::Session& session = leaving->session();
  const Rank lost = leaving->lost_rank();
  if (lost >= 0 && lost != session.me)
    s.rendezvous.note_loss(
        {lost, session.size(), runtime::describe(lost, (*session.all)[static_cast<size_t>(lost)])});
  stop_metrics_port();
  stop_endpoint();
  const std::lock_guard engine_lock(s.mutex);
  s.engine.reset();
}

trace::Timeline& timeline() { return *state().timeline; }

int fail(const Status& why) {
  t_error = why.why;
  return static_cast<int>(why.code);
}

int fail_not_initialized() {
  const char* const why = is_forked_child() ? kForked : "Horovod has not been initialized; use hvd.init().";
  return fail({Code::kNotInitialized, why});
}

const char* last_error() { return t_error.c_str(); }

const char* keep_text(std::string text) {
  t_text = std::move(text);
  return t_text.c_str();
}

}  // namespace rueda::capi
