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

// The table takes half a MiB, of which only the part below the highest number in use is touched.
constexpr int kMaxDescriptors = 65'536;

// The inode of each guarded socket, by descriptor; 0 = not guarded. Descriptor numbers are reused, so the
// inode tells sockets apart: other threads may close and open descriptors during a fork, and the kernel
// copies the descriptors of the child before its memory.
std::array<std::atomic<uint64_t>, kMaxDescriptors> g_inodes{};
std::atomic<int> g_end{0};  // 1 + the highest descriptor ever guarded
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

uint64_t inode_of_socket(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// Async-signal-safe, because another thread may have held any lock at the fork. It must not call shutdown(2),
// which would end the parent's connection.
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
