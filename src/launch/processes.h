// Starting processes, and finding and ending everything that descends from one. Linux only.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct SpawnSpec {
  std::string path;  // of the program, with a '/'
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value"
  std::string cwd;               // "" = ours
  int in = -1, out = -1, err = -1;
  int death_signal = 0;      // sent to it when the *thread* that spawned it ends; 0 = none
  std::vector<int> cores{};  // that it keeps to; empty = ours
};

// The child gets its own session, default signal dispositions and an empty mask, and no descriptor but the
// three. Fails with kInvalidArgument if the program or the directory does not exist, with kPermissionDenied
// if it may not be run, else with kUnavailable.
Result<pid_t> spawn(const SpawnSpec& spec);

// The exit code a shell would give for a failing spawn: 127 not found, 126 not executable, else 1.
int exit_code_of(const Status& spawn_failure);

// As execvp would find it, but in the given PATH and relative to cwd.
Result<std::string> find_program(const std::string& name, std::string_view path, const std::string& cwd);

struct Pipe {
  UniqueFd read, write;  // both close-on-exec
};
Result<Pipe> make_pipe();
void set_nonblocking(int fd);

// All living (not zombie) processes below ancestor, itself excluded. Orphans are found too as long as
// ancestor is their subreaper.
std::vector<pid_t> descendants_of(pid_t ancestor);
// SIGKILLs all descendants of this process until none is alive (zombies remain to be reaped) or the deadline
// passes. Those that started before `since` (see start_ticks) or are named `spare` are left alone. Returns
// how many are left.
size_t kill_descendants(Deadline deadline, uint64_t since = 0, std::string_view spare = {});
uint64_t start_ticks(pid_t pid);  // when it started, in the kernel's clock ticks; 0 = no such process

// "oom_kill" of the memory cgroup this process is in, -1 if unreadable. cgroup v2, else v1.
int64_t oom_kills();

std::vector<std::string> to_environment(const Variables& variables);  // the last of equal names wins

}  // namespace rueda::launch
