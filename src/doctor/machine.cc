#include "doctor/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "doctor/first_line.h"
#include "launch/processes.h"
#include "rueda/base/memory_file.h"
#include "rueda/store/address.h"
#include "rueda/store/world.h"

namespace rueda::doctor {
namespace {

constexpr unsigned long long kSmallShm = 256ULL << 20;  // Docker gives 64 MiB
constexpr rlim_t kFewDescriptors = 1024;
// As large as the files that two ranks share by default (RUEDA_SHM_RING_BYTES): a limit may admit smaller
// ones.
constexpr size_t kSharedBytes = size_t{4} << 20;
constexpr unsigned long long kNoLimit = 1ULL << 60;  // cgroup v1 writes a huge number for "max"

// Reads a file of this process's control group, version 2 or 1; "" if it cannot be read.
std::string group_file(const std::string& v2, const std::string& controller, const std::string& v1) {
  std::ifstream list("/proc/self/cgroup");
  for (std::string line; std::getline(list, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool is_v2 = names.empty();
    if (!is_v2 && names.find(controller) == std::string::npos) continue;
    const std::string root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    for (const std::string& place : {root + path, root})  // inside a container, its own group is the root
      if (std::string text = first_line(place + "/" + (is_v2 ? v2 : v1)); !text.empty()) return text;
  }
  return "";
}

std::string quota_text() {
  const std::string v2 = group_file("cpu.max", "cpu", "cpu.cfs_quota_us");
  double quota = 0, period = 100'000;
  if (std::sscanf(v2.c_str(), "%lf %lf", &quota, &period) < 1 || quota <= 0 || period <= 0) return "none";
  return fmt::format("{:.1f} cores", quota / period);
}

unsigned long long memory_limit() {
  const std::string text = group_file("memory.max", "memory", "memory.limit_in_bytes");
  unsigned long long bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && bytes < kNoLimit ? bytes : 0;
}

unsigned long long machine_memory() {
  return static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}

std::string model_of_processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

// Returns the word in brackets, as in "always within_size advise [never] deny force".
std::string chosen(const std::string& line) {
  const size_t begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "unknown"
                                                                : line.substr(begin + 1, end - begin - 1);
}

std::string where(const char* program) {
  const char* path = getenv("PATH");
  const Result<std::string> found = launch::find_program(program, path != nullptr ? path : "", "");
  return found.is_ok() ? found.value() : "not found";
}

void add_descriptors(Section& section) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  section.add("open files", fmt::format("{} (at most {})", limit.rlim_cur, limit.rlim_max));
  if (limit.rlim_cur < kFewDescriptors)
    section.advise(fmt::format(
        "a process may open {} files, and a rank needs several for each other rank; run `ulimit -n 65536`",
        limit.rlim_cur));
}

}  // namespace

int usable_cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  return sched_getaffinity(0, sizeof(mine), &mine) == 0 ? CPU_COUNT(&mine) : 0;
}

unsigned long long usable_memory_bytes() {
  const unsigned long long limit = memory_limit();
  return limit == 0 ? machine_memory() : std::min(limit, machine_memory());
}

long long free_shm_bytes() {
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) != 0) return -1;
  return static_cast<long long>(shm.f_bavail) * static_cast<long long>(shm.f_frsize);
}

Section examine_processor() {
  Section section{.title = "processor", .facts = {}, .problems = {}};
  section.add("model", model_of_processor());
  section.add("cores", fmt::format("{} of {} may be used", usable_cores(), sysconf(_SC_NPROCESSORS_CONF)));
  section.add("quota of the group", quota_text());
  return section;
}

std::string shared_memory_fault() {
  const Result<UniqueFd> memory = make_memory_file(kSharedBytes);
  return memory.is_ok() ? "" : memory.status().why;
}

Section examine_memory(const std::string& memory_fault) {
  Section section{.title = "memory", .facts = {}, .problems = {}};
  const unsigned long long limit = memory_limit();
  section.add("memory", bytes_text(machine_memory()));
  section.add("limit of the group", limit == 0 ? "none" : bytes_text(limit));
  section.add("memfd",
              memory_fault.empty() ? "works; ranks of this host share memory with it" : "does not work");
  if (!memory_fault.empty())
    section.advise(
        fmt::format("shared memory is not available here: {} Jobs run all the same: their ranks exchange "
                    "data over TCP also "
                    "inside the host, which takes longer and more of its cores, and rank 0 warns of it once",
                    memory_fault));
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    const unsigned long long size = static_cast<unsigned long long>(shm.f_blocks) * shm.f_frsize;
    const unsigned long long free = static_cast<unsigned long long>(shm.f_bavail) * shm.f_frsize;
    section.add("/dev/shm",
                fmt::format("{}, {} free (not used by rueda)", bytes_text(size), bytes_text(free)));
    if (free < kSmallShm)
      section.advise(
          fmt::format("/dev/shm has {} left; rueda does not need it, but workers of PyTorch's "
                      "DataLoader do; start a container with --shm-size=1g",
                      bytes_text(free)));
  } else {
    section.add("/dev/shm", "not mounted (not used by rueda)");
  }
  section.add("huge pages, shared", chosen(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled")));
  section.add("huge pages, private", chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled")));
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  section.add("ptrace scope",
              (scope.empty() ? "no limit" : scope) + " (rueda does not read other processes)");
  add_descriptors(section);
  return section;
}

Section examine_network(const std::string& interface) {
  Section section{.title = "network", .facts = {}, .problems = {}};
  bool has_network = false;
  for (const store::LocalAddress& address : store::local_addresses()) {
    const auto known = std::ranges::find(section.facts, address.interface, &Fact::name);
    if (known == section.facts.end())
      section.add(address.interface, address.ip);
    else
      known->value += ", " + address.ip;
    has_network = has_network || !address.is_loopback;
  }
  section.add("ranks of this host", "shared memory, or 127.0.0.1 without it");
  const Result<std::string> chosen_address = store::choose_address(interface, "");
  if (!chosen_address.is_ok()) {
    section.fail(chosen_address.status().why + ".");
    return section;
  }
  section.add("towards other hosts",
              chosen_address.value() +
                  (interface.empty() ? ", chosen by the kernel's routes" : ", by RUEDA_INTERFACE"));
  if (!has_network)
    section.advise("only the loopback interface is up, so ranks of other hosts cannot be reached");
  return section;
}

Section examine_launchers() {
  Section section{.title = "launching", .facts = {}, .problems = {}};
  const Result<store::World> world = store::detect_own_world();
  if (world.is_ok()) {
    const store::World& found = world.value();
    section.add("started by", found.launcher + ": " + found.reason);
    section.add("host", found.host);
    if (!found.warning.empty()) section.advise(found.warning);
  } else {
    section.fail(world.status().why + ".");
  }
  for (const char* program : {"ssh", "torchrun", "mpirun", "srun"}) section.add(program, where(program));
  if (where("ssh") == "not found")
    section.advise(
        "ssh is not installed, so `rueda run` can start ranks on this host only; install openssh-client");
  return section;
}

}  // namespace rueda::doctor
