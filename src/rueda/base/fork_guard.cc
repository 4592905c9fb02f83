#include "rueda/base/fork_guard.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace rueda::fork_guard {
namespace {

constexpr int kMaxDescriptors = 65'536;  // half a MiB that stays untouched above the highest number in use

// By descriptor: the socket's inode, 0 = not guarded. Numbers are reused, inodes tell sockets apart: other
// threads may close and open while this process forks, and the child's descriptors are copied before its
// memory.
std::array<std::atomic<uint64_t>, kMaxDescriptors> g_inodes{};
std::atomic<int> g_end{0};  // 1 + the highest descriptor ever guarded
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

uint64_t inode_of_socket(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// Async-signal-safe: another thread may have held any lock at the fork. Never shutdown(2): that would end the
// parent's connection.
void close_in_child() {
  const int saved_errno = errno;
  const int end = g_end.load();
  for (int fd = 0; fd < end; ++fd) {
    const uint64_t inode = g_inodes[static_cast<size_t>(fd)].exchange(0);
    if (inode != 0 && inode_of_socket(fd) == inode) close(fd);
  }
  errno = saved_errno;
}

}  // namespace

bool add(int fd) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, close_in_child);
  if (fd < 0 || fd >= kMaxDescriptors) return false;
  const uint64_t inode = inode_of_socket(fd);
  if (inode == 0) return false;
  g_inodes[static_cast<size_t>(fd)].store(inode);
  int end = g_end.load();
  while (end <= fd && !g_end.compare_exchange_weak(end, fd + 1)) {
  }
  return true;
}

bool forget(int fd) {
  return fd >= 0 && fd < kMaxDescriptors && g_inodes[static_cast<size_t>(fd)].exchange(0) != 0;
}

}  // namespace rueda::fork_guard
