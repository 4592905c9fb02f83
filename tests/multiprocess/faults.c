/* For LD_PRELOAD: from arm_fault(call, number, error, family) on, the number-th call of that function fails
   with this error, and so does each later one; with error 0 the process is killed at that call instead, and
   with error -1 it is stopped there once.
   family: of the addresses that bind() and connect() are to look at; 0 is any. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static const char* call_ = NULL;
static int number_ = 0, error_ = 0, family_ = 0, seen_ = 0;

void arm_fault(const char* call, int number, int error, int family) {
  number_ = number;
  error_ = error;
  family_ = family;
  call_ = strdup(call);
}

static int fails(const char* call) {
  if (call_ == NULL || strcmp(call, call_) != 0) return 0;
  if (__atomic_add_fetch(&seen_, 1, __ATOMIC_RELAXED) < number_) return 0;
  if (error_ == 0) kill(getpid(), SIGKILL);
  if (error_ < 0) {
    call_ = NULL;
    kill(getpid(), SIGSTOP);
    return 0;
  }
  errno = error_;
  return 1;
}

static int fails_at(const char* call, const struct sockaddr* address) {
  return (family_ == 0 || address->sa_family == family_) && fails(call);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int bind(int fd, const struct sockaddr* address, socklen_t size) {
  return fails_at("bind", address) ? -1 : NEXT(bind)(fd, address, size);
}
int connect(int fd, const struct sockaddr* address, socklen_t size) {
  return fails_at("connect", address) ? -1 : NEXT(connect)(fd, address, size);
}
int listen(int fd, int backlog) { return fails("listen") ? -1 : NEXT(listen)(fd, backlog); }
int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  return fails("accept4") ? -1 : NEXT(accept4)(fd, address, size, flags);
}
ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  return fails("send") ? -1 : NEXT(send)(fd, bytes, count, flags);
}
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  return fails("sendmsg") ? -1 : NEXT(sendmsg)(fd, message, flags);
}
ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  return fails("recvmsg") ? -1 : NEXT(recvmsg)(fd, message, flags);
}
int memfd_create(const char* name, unsigned flags) {
  return fails("memfd_create") ? -1 : NEXT(memfd_create)(name, flags);
}
