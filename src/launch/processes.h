// Starts processes, and finds and ends all descendants of a process. Linux only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/environment.h"
#include "rueda/base/clock.h"
#include "rueda/base/process.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct SpawnSpec {
  std::string path;  // of the program, with a '/'
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value"
  std::string cwd;               // "" = ours
  int in = -1, out = -1, err = -1;
  // It is not below this process, for those who look for our descendants: a child of init, or of the nearest
  // subreaper above us. We are not told of its end, and it gets no death_signal.
  bool is_aside = false;
  int death_signal = 0;      // which the child gets when the *thread* that spawned it ends; 0 = none
  std::vector<int> cores{};  // CPUs that it may run on; empty = ours
};

// The child gets its own session, default signal handlers, an empty signal mask, and no descriptors except
// the three. Fails with kInvalidArgument if the program or the directory does not exist, with
// kPermissionDenied if the program may not be run, and otherwise with kUnavailable.
Result<pid_t> spawn(const SpawnSpec& spec);

// The exit code that a shell would use for a failed spawn: 127 if not found, 126 if not
// executable, otherwise 1.
int exit_code_of(const Status& spawn_failure);

// Searches as execvp does, but in the given PATH and relative to cwd.
Result<std::string> find_program(const std::string& name, std::string_view path, const std::string& cwd);

struct Pipe {
  UniqueFd read, write;  // both close-on-exec
};
Result<Pipe> make_pipe();
void set_nonblocking(int fd);

std::string read_text(const std::string& path);  // of a whole file; empty if it cannot be read

// Not of a zombie, unless one of its threads has not ended.
bool is_alive(const ProcessLook& look);
// All processes that can be seen and are alive, with their parents.
std::vector<std::pair<pid_t, ProcessLook>> living_processes();
// All descendants of `ancestor` that are alive, those below a zombie as well. Orphans are found if `ancestor`
// is their subreaper. Without those in `spared` and what is below them.
std::vector<pid_t> descendants_of(pid_t ancestor, std::span<const pid_t> spared = {});
// Sends SIGKILL to what `find` finds until three looks in a row find nothing, or the deadline passes:
// processes change their parent while their old one ends, and a look at /proc takes time. Zombies remain to
// be reaped. Returns how many the last look has found.
size_t kill_all(const std::function<std::vector<pid_t>()>& find, Deadline deadline);
// The same for all descendants of this process. Processes that started before `since` (see start_ticks) have
// one of the names in `spare` are left alone.
size_t kill_descendants(Deadline deadline, uint64_t since = 0, std::span<const std::string_view> spare = {});
uint64_t start_ticks(pid_t pid);  // its start time in the kernel's clock ticks; 0 = no such process

// The counter "oom_kill" of the memory cgroup of this process (cgroup v2 or v1), or -1 if it cannot be read.
int64_t oom_kills();

std::vector<std::string> to_environment(const Variables& variables);  // the last of equal names wins

}  // namespace rueda::launch
