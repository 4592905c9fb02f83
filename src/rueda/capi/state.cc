#include "rueda/capi/state.h"

#include <pthread.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/config_table.h"
#include "rueda/capi/forks.h"

namespace rueda::capi {
namespace {

struct CoreState {
  std::mutex mutex;  // guards engine
  std::shared_ptr<runtime::Engine> engine;
  runtime::RendezvousPoint rendezvous;
  runtime::ElasticRank elastic{[](const char* name) -> const char* { return std::getenv(name); }};
  std::shared_ptr<trace::Timeline> timeline = trace::make_timeline();  // one file for all epochs
  std::mutex arena_mutex;
  std::shared_ptr<memory::Arena> arena;
  Status arena_status;
  std::mutex detached_mutex;
  std::map<void*, runtime::OwnedMemory> detached;  // on devices
  // In a forked child: copies of the arenas of its parent.
  std::vector<std::shared_ptr<memory::Arena>> inherited;
};

// Never freed, because threads and handles may outlive static destruction.
CoreState& state() {
  static auto* const instance = new CoreState;
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
  const CoreState& s = state();
  if (s.arena && s.arena->memory().holds(address, 1)) return s.arena.get();
  for (const auto& one : s.inherited)
    if (one->memory().holds(address, 1)) return one.get();
  return nullptr;
}

thread_local std::string t_error;
thread_local std::string t_text;

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
  CoreState& s = state();
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

void set_engine(std::shared_ptr<runtime::Engine> engine) {
  const std::lock_guard lock(state().mutex);
  state().engine = std::move(engine);
}

runtime::RendezvousPoint& rendezvous() { return state().rendezvous; }

runtime::ElasticRank& elastic_rank() { return state().elastic; }

trace::Timeline& timeline() { return *state().timeline; }
std::shared_ptr<trace::Timeline> shared_timeline() { return state().timeline; }

int fail(const Status& why) {
  t_error = why.why;
  return static_cast<int>(why.code);
}

int fail_not_initialized() {
  const char* const why =
      is_forked_child() ? kForkedSentence : "Horovod has not been initialized; use hvd.init().";
  return fail({Code::kNotInitialized, why});
}

const char* last_error() { return t_error.c_str(); }

const char* keep_text(std::string text) {
  t_text = std::move(text);
  return t_text.c_str();
}

}  // namespace rueda::capi
