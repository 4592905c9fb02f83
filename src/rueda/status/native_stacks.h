// The native stacks of the threads of this process, while they run or hang. A real-time signal, for which
// the program has no use, is sent to one thread after the other, and its handler notes the return addresses.
// That needs neither rights (as ptrace does) nor the help of the thread, which may hang in C code or wait in
// the kernel. A system call that is interrupted goes on (SA_RESTART), except for those that Linux never
// continues, such as poll; profilers interrupt programs in the same way. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::status {

inline constexpr size_t kMaxThreads = 256;
inline constexpr size_t kMaxFrames = 64;

struct NativeFrame {
  std::string function;  // demangled; empty where the module shows no name for it
  std::string module;    // the file's name, as in "libc.so.6"
  uint64_t offset = 0;   // from where the module was loaded, as addr2line takes it
};

struct ThreadState {
  int tid = 0;
  std::string name;
  char state = '?';              // as in /proc: R runs, S sleeps, D waits for a device
  uint64_t blocked_signals = 0;  // bit n-1: signal n
};

struct NativeStack {
  ThreadState thread;
  uint64_t ident = 0;               // pthread_self(), Python's ident of the thread; 0 = unknown
  std::vector<NativeFrame> frames;  // innermost first
  std::string missing;              // why there are no frames
};

// A signal for which the program has no handler, for the caller's own; 0 if there is none.
int free_signal();

// Chooses the signal and installs the handler, once per process. False: no signal is free.
bool prepare_native_stacks();
// The calling thread, which blocks the program's signals, lets itself be looked at.
void admit_stack_signal();

enum class Caller : uint8_t { kIncluded, kLeftOut };

// Of all threads, the main one first, until the deadline. One capture runs at a time.
std::vector<NativeStack> capture_native(Deadline deadline, Caller caller);

// The text of /proc/self/task/<tid>/status. Pure.
ThreadState parse_thread_state(int tid, std::string_view text);

}  // namespace rueda::status
