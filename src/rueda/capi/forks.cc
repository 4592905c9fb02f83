#include "rueda/capi/forks.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace rueda::capi {
namespace {

std::mutex g_mutex;  // held from before a fork until after it
std::unique_ptr<Inherited> (*g_what_is_known)();
std::unique_ptr<Inherited> g_at_fork;  // of the fork under way
std::atomic<bool> g_is_child{false};
std::atomic<const Inherited*> g_inherited{nullptr};

// Everything is read here, while the threads that hold locks of the engine still run: in the child such a
// lock would stay locked for ever.
void before_fork() {
  g_mutex.lock();
  if (g_is_child) return;  // a grandchild knows what its parent does
  g_at_fork = g_what_is_known();
}

void after_fork_in_parent() {
  g_at_fork.reset();
  g_mutex.unlock();
}

void after_fork_in_child() {
  if (!g_is_child.exchange(true)) g_inherited = g_at_fork.release();  // for as long as the child lives
  g_mutex.unlock();
}

}  // namespace

Topology topology_of(const runtime::Engine& engine) {
  const runtime::Session& session = engine.session();
  return {.epoch = session.epoch, .rank = session.me, .size = session.size(), .place = session.place};
}

void watch_forks(std::unique_ptr<Inherited> (*what_is_known)()) {
  g_what_is_known = what_is_known;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

bool is_forked_child() { return g_is_child.load(std::memory_order_relaxed); }

const Inherited* inherited() { return g_inherited.load(std::memory_order_relaxed); }

void forget_inherited() { g_inherited = nullptr; }

}  // namespace rueda::capi
