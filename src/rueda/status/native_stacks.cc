#include "rueda/status/native_stacks.h"

#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "rueda/base/process.h"

namespace rueda::status {
namespace {

constexpr Nanos kThreadTime = 200 * kMillisecond;  // for one thread to answer, on a loaded machine too
constexpr Nanos kHandlerTime = 2 * kSecond;        // for a handler that has begun
constexpr int kDeepest = 128;                      // addresses, with those of the handler itself

// What the handler and the capturing thread share. The word says which thread is asked and how far it is. A
// handler that comes too late finds another word and does nothing, so it never writes into a later answer.
enum : uint64_t { kIdle = 0, kAsked = 1, kWriting = 2 };
constexpr uint64_t word_of(int tid, uint64_t state) { return static_cast<uint64_t>(tid) << 2 | state; }

struct Shared {
  std::atomic<uint64_t> word{kIdle};
  sem_t written{};
  int count = 0;
  std::array<void*, kDeepest> addresses{};
  uintptr_t interrupted_at = 0;
  uint64_t ident = 0;
};
Shared g_shared;
static_assert(std::atomic<uint64_t>::is_always_lock_free);

std::mutex g_mutex;        // of the capturing thread, and of all below
int g_signal = 0;          // 0: not prepared
bool g_is_broken = false;  // a handler began and never ended

uintptr_t program_counter(const void* context) {
  [[maybe_unused]] const auto* machine = &static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine->gregs[REG_RIP]);
#elif defined(__aarch64__)
  return machine->pc;
#else
  return 0;
#endif
}

void on_signal(int /*signal*/, siginfo_t* /*info*/, void* context) {
  const int error = errno;
  const int tid = static_cast<int>(syscall(SYS_gettid));
  uint64_t expected = word_of(tid, kAsked);
  if (g_shared.word.compare_exchange_strong(expected, word_of(tid, kWriting))) {
    g_shared.ident = static_cast<uint64_t>(pthread_self());
    g_shared.interrupted_at = program_counter(context);
    g_shared.count = backtrace(g_shared.addresses.data(), kDeepest);
    sem_post(&g_shared.written);
  }
  errno = error;
}

bool wait_for_answer(Nanos duration) {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  const Nanos total = until.tv_nsec + duration;
  until.tv_sec += total / kSecond;
  until.tv_nsec = total % kSecond;
  int result = 0;
  while ((result = sem_timedwait(&g_shared.written, &until)) != 0 && errno == EINTR) {
  }
  return result == 0;
}

std::vector<int> threads_of_process() {
  std::vector<int> tids;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc/self/task"), closedir);
  while (dir) {
    const dirent* const entry = readdir(dir.get());
    if (entry == nullptr) break;
    const int tid = std::atoi(entry->d_name);
    if (tid > 0) tids.push_back(tid);
  }
  const int main_thread = getpid();
  std::sort(tids.begin(), tids.end(), [main_thread](int a, int b) {
    return std::pair(a != main_thread, a) < std::pair(b != main_thread, b);
  });
  return tids;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text ? text.get() : name;
}

// Names addresses. Threads of a pool wait at the same ones, and a large library is slow to search.
class Names {
 public:
  // is_return: the address is behind a call, and the call itself may end its function.
  const NativeFrame& of(void* address, bool is_return) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address) - (is_return ? 1 : 0);
    const auto [place, is_new] = known_.try_emplace(at);
    if (!is_new) return place->second;
    NativeFrame& frame = place->second;
    frame.offset = at;
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(at), &info) == 0) return frame;
    frame.offset = at - reinterpret_cast<uintptr_t>(info.dli_fbase);
    if (info.dli_fname != nullptr) frame.module = info.dli_fname;
    if (const size_t slash = frame.module.rfind('/'); slash != std::string::npos)
      frame.module.erase(0, slash + 1);
    if (info.dli_sname != nullptr) frame.function = demangled(info.dli_sname);
    return frame;
  }

 private:
  std::map<uintptr_t, NativeFrame> known_;
};

void take_answer(NativeStack& stack, Names& names) {
  stack.ident = g_shared.ident;
  const auto end = g_shared.addresses.begin() + g_shared.count;
  // Before the place of the interruption lie the handler and the kernel's trampoline.
  auto first = std::find(g_shared.addresses.begin(), end, reinterpret_cast<void*>(g_shared.interrupted_at));
  if (first == end) first = g_shared.addresses.begin();
  for (auto at = first; at != end && stack.frames.size() < kMaxFrames; ++at)
    stack.frames.push_back(names.of(*at, at != first));
}

void look_at_caller(NativeStack& stack, Names& names) {
  std::array<void*, kMaxFrames> addresses{};
  const int count = backtrace(addresses.data(), static_cast<int>(addresses.size()));
  stack.ident = static_cast<uint64_t>(pthread_self());
  for (int i = 0; i < count; ++i) stack.frames.push_back(names.of(addresses[static_cast<size_t>(i)], i > 0));
}

void ask(NativeStack& stack, Names& names) {
  const int tid = stack.thread.tid;
  if ((stack.thread.blocked_signals >> (g_signal - 1) & 1) != 0) {
    stack.missing = "it blocks signals";
    return;
  }
  g_shared.word.store(word_of(tid, kAsked));
  if (syscall(SYS_tgkill, getpid(), tid, g_signal) != 0) {
    g_shared.word.store(kIdle);
    stack.missing = "it has ended";
    return;
  }
  bool is_written = wait_for_answer(kThreadTime);
  uint64_t expected = word_of(tid, kAsked);
  if (!is_written && g_shared.word.compare_exchange_strong(expected, kIdle)) {
    stack.missing = stack.thread.state == 'D' ? "it waits in the kernel and cannot be interrupted"
                                              : "it did not answer within 0.2 s";
    return;
  }
  if (!is_written) is_written = wait_for_answer(kHandlerTime);
  if (!is_written) {
    g_is_broken = true;  // its handler still writes, so nothing else may be asked of any thread
    stack.missing = "its signal handler does not end";
    return;
  }
  g_shared.word.store(kIdle);
  take_answer(stack, names);
}

bool handles_signal() {
  struct sigaction now {};
  return g_signal != 0 && sigaction(g_signal, nullptr, &now) == 0 && now.sa_sigaction == on_signal;
}

}  // namespace

int free_signal() {
  for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; --signal) {  // the ends are the ones that programs take
    struct sigaction now {};
    const bool is_default = sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
                            now.sa_handler == SIG_DFL;
    if (is_default) return signal;
  }
  return 0;
}

bool prepare_native_stacks() {
  const std::lock_guard lock(g_mutex);
  if (g_signal != 0) return true;
  // The first call loads the unwinder and allocates; later ones, in the handler, must not.
  std::array<void*, 4> unused{};
  backtrace(unused.data(), static_cast<int>(unused.size()));
  sem_init(&g_shared.written, 0, 0);
  const int signal = free_signal();
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  if (signal == 0 || sigaction(signal, &action, nullptr) != 0) return false;
  g_signal = signal;
  return true;
}

void admit_stack_signal() {
  if (!prepare_native_stacks()) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, g_signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

ThreadState parse_thread_state(int tid, std::string_view text) {
  ThreadState state;
  state.tid = tid;
  const auto value = [text](std::string_view key) {
    const size_t at = text.starts_with(key) ? 0 : text.find("\n" + std::string(key));
    if (at == std::string_view::npos) return std::string_view();
    const size_t begin = text.find('\t', at);
    const size_t end = std::min(text.find('\n', at + 1), text.size());
    return begin < end ? text.substr(begin + 1, end - begin - 1) : std::string_view();
  };
  state.name = value("Name:");
  if (const std::string_view letter = value("State:"); !letter.empty()) state.state = letter.front();
  const std::string_view blocked = value("SigBlk:");
  std::from_chars(blocked.data(), blocked.data() + blocked.size(), state.blocked_signals, 16);
  return state;
}

std::vector<NativeStack> capture_native(Deadline deadline, Caller caller) {
  const bool is_ready = prepare_native_stacks();
  const std::lock_guard lock(g_mutex);
  std::vector<NativeStack> stacks;
  Names names;
  const int mine = static_cast<int>(syscall(SYS_gettid));
  for (const int tid : threads_of_process()) {
    if (tid == mine && caller == Caller::kLeftOut) continue;
    if (stacks.size() == kMaxThreads) break;
    NativeStack& stack = stacks.emplace_back();
    stack.thread = parse_thread_state(tid, read_proc("/proc/self/task/" + std::to_string(tid) + "/status"));
    if (tid == mine)
      look_at_caller(stack, names);
    else if (!is_ready)
      stack.missing = "the program uses every real-time signal";
    else if (!handles_signal())
      stack.missing =
          "the program has taken signal " + std::to_string(g_signal) + ", which rueda uses for stacks";
    else if (g_is_broken)
      stack.missing = "an earlier signal handler did not end";
    else if (deadline.is_past())
      stack.missing = "there was no time left";
    else
      ask(stack, names);
  }
  return stacks;
}

}  // namespace rueda::status
