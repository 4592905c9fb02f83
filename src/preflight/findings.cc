#include "preflight/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/report.h"
#include "doctor/hardware.h"
#include "doctor/report.h"

namespace rueda::preflight {
namespace {

// A rank has up to three channels to each other rank, and some files of its own.
constexpr int64_t kFilesPerRank = 3, kOwnFiles = 128;
constexpr int64_t kPortsPerRank = 3;
constexpr int64_t kSmallShm = int64_t{256} << 20;  // Docker gives 64 MiB
// Later than this, log lines of two hosts cannot be put in order by eye; from kWrongClockUs on, tickets,
// certificates and the file times that build tools and checkpoints compare are wrong.
constexpr double kApartUs = 50e3, kWrongClockUs = 1e6;
constexpr double kCardShare = 0.5;

void fail(Findings& findings, std::string kind, std::vector<std::string> hosts, std::string sentence) {
  findings.push_back({std::move(kind), std::move(hosts), std::move(sentence), true});
}
void advise(Findings& findings, std::string kind, std::vector<std::string> hosts, std::string sentence) {
  findings.push_back({std::move(kind), std::move(hosts), std::move(sentence), false});
}

void check_limits(Findings& findings, const HostFacts& facts, int ranks) {
  const int64_t files = kOwnFiles + kFilesPerRank * ranks, ports = kPortsPerRank * ranks;
  if (facts.open_files < files)
    fail(findings, "open-files", {facts.host},
         fmt::format(
             "{}: a process may open {} files at most, and a rank of this job needs {}; raise the hard "
             "limit (ulimit -Hn, LimitNOFILE=)",
             facts.host, facts.open_files, files));
  if (!facts.can_listen || facts.free_ports < ports)
    fail(findings, "ports", {facts.host},
         fmt::format("{}: {} local TCP ports are free, and a rank of this job needs up to {}; widen "
                     "net.ipv4.ip_local_port_range",
                     facts.host, facts.can_listen ? facts.free_ports : 0, ports));
  if (!facts.has_memfd)
    fail(
        findings, "shared-memory", {facts.host},
        fmt::format("{}: its ranks cannot share memory, so their data would go over TCP, which is slower; "
                    "allow memfd_create in the container's seccomp profile, and files of any size (ulimit -f "
                    "unlimited)",
                    facts.host));
  if (facts.shm_free_bytes < kSmallShm) {
    const std::string what =
        facts.shm_free_bytes < 0
            ? "/dev/shm is not mounted"
            : fmt::format("/dev/shm has {} left",
                          doctor::bytes_text(static_cast<unsigned long long>(facts.shm_free_bytes)));
    // rueda does without it; PyTorch's loaders die of it.
    findings.push_back(
        {"shm-size",
         {facts.host},
         fmt::format("{}: {}, and workers of PyTorch's DataLoader need it; start the container "
                     "with --shm-size=1g",
                     facts.host, what),
         facts.packages.contains("torch")});
  }
}

struct Group {
  std::string value;
  std::vector<std::string> hosts;
};

// The hosts by value, the most common first.
template <class Value>
std::vector<Group> groups_of(std::span<const HostFacts> hosts, Value&& value_of) {
  std::vector<Group> groups;
  for (const HostFacts& facts : hosts) {
    const std::string value = value_of(facts);
    const auto known = std::ranges::find(groups, value, &Group::value);
    (known != groups.end() ? *known : groups.emplace_back(Group{value, {}})).hosts.push_back(facts.host);
  }
  std::ranges::stable_sort(groups,
                           [](const Group& a, const Group& b) { return a.hosts.size() > b.hosts.size(); });
  return groups;
}

struct Comparison {
  const char *kind, *what, *remedy;
  bool is_broken;
};

template <class Value>
void compare(Findings& findings, std::span<const HostFacts> hosts, const Comparison& about,
             Value&& value_of) {
  const std::vector<Group> groups = groups_of(hosts, value_of);
  const auto text = [](const std::string& value) { return value.empty() ? "none" : value; };
  for (size_t i = 1; i < groups.size(); ++i)
    findings.push_back(
        {about.kind, groups[i].hosts,
         fmt::format("{}: {} is {}, but on {} it is {}; {}", names_text(groups[i].hosts), about.what,
                     text(groups[i].value), names_text(groups[0].hosts), text(groups[0].value), about.remedy),
         about.is_broken});
}

std::string round_up_gib(int64_t bytes) {
  return fmt::format("{} GiB", (bytes + (int64_t{1} << 30) - 1) >> 30);
}

std::string gpus_text(const HostFacts& facts) {
  if (facts.gpus.empty()) return "";
  const bool are_equal = std::ranges::count(facts.gpus, facts.gpus[0]) == std::ssize(facts.gpus);
  return are_equal ? fmt::format("{} x {}", facts.gpus.size(), facts.gpus[0])
                   : fmt::format("{} of several models", facts.gpus.size());
}

}  // namespace

Findings check_hosts(std::span<const HostFacts> hosts, int ranks) {
  Findings findings;
  std::vector<std::string> unsynchronised;
  for (const HostFacts& facts : hosts) {
    if (!facts.library_problem.empty())
      fail(findings, "library", {facts.host}, fmt::format("{}: {}", facts.host, facts.library_problem));
    else if (facts.library_release != facts.release)
      fail(findings, "release", {facts.host},
           fmt::format("{}: the command has release {}, but {} has {}; install both from one wheel",
                       facts.host, facts.release, facts.library_path, facts.library_release));
    check_limits(findings, facts, ranks);
    if (!facts.is_clock_synchronised) unsynchronised.push_back(facts.host);
  }
  if (!unsynchronised.empty())
    advise(findings, "clock-sync", unsynchronised,
           fmt::format("{}: {}", names_text(unsynchronised), doctor::kNoTimeService));
  return findings;
}

Findings compare_hosts(std::span<const HostFacts> hosts) {
  Findings findings;
  compare(findings, hosts, {"release", "the release of rueda", "install the same wheel on all hosts", true},
          [](const HostFacts& facts) { return facts.release; });
  compare(findings, hosts,
          {"library", "the identity of librueda.so", "install the same wheel on all hosts", true},
          [](const HostFacts& facts) { return facts.library_id; });
  std::set<std::string> packages;
  for (const HostFacts& facts : hosts)
    for (const auto& [name, version] : facts.packages) packages.insert(name);
  for (const std::string& name : packages) {
    const std::string what = "the version of " + name;
    compare(findings, hosts, {"package", what.c_str(), "install the same version on all hosts", true},
            [&](const HostFacts& facts) {
              const auto found = facts.packages.find(name);
              return found == facts.packages.end() ? std::string() : found->second;
            });
  }
  compare(findings, hosts, {"gpu", "the set of GPUs", "look for a GPU that is missing or hidden", true},
          gpus_text);
  compare(findings, hosts, {"gpu-driver", "the GPU driver", "use one driver on all hosts", false},
          [](const HostFacts& facts) { return facts.gpu_driver; });
  compare(findings, hosts, {"nccl", "the version of NCCL", "use one version on all hosts", true},
          [](const HostFacts& facts) { return facts.nccl; });
  compare(findings, hosts,
          {"mtu", "the MTU towards other hosts", "large packets may be lost; set one MTU", false},
          [](const HostFacts& facts) { return std::to_string(facts.mtu); });
  compare(findings, hosts, {"cores", "the number of usable cores", "the slowest host sets the pace", false},
          [](const HostFacts& facts) { return std::to_string(facts.cores); });
  compare(findings, hosts, {"memory", "the memory", "the smallest host sets the limit", false},
          [](const HostFacts& facts) { return round_up_gib(facts.memory_bytes); });
  compare(
      findings, hosts,
      {"clock-source", "the kernel's clock source", "reading the clock is slow with hpet and acpi_pm", false},
      [](const HostFacts& facts) { return facts.clock_source; });
  return findings;
}

Findings check_clocks(std::span<const std::string> hosts, std::span<const ClockOffset> offsets) {
  Findings findings;
  for (size_t host = 0; host < offsets.size(); ++host) {
    const double certain = std::abs(offsets[host].us) - offsets[host].error_us;
    if (certain < kApartUs) continue;
    findings.push_back(
        {"clock",
         {hosts[host]},
         fmt::format(
             "{}: the clock is {} {} (+- {}) those of most hosts; start a time service such as chrony",
             hosts[host], bench::us_text(std::abs(offsets[host].us)),
             offsets[host].us > 0 ? "ahead of" : "behind", bench::us_text(offsets[host].error_us)),
         certain >= kWrongClockUs});
  }
  return findings;
}

Findings check_links(std::span<const std::string> hosts, std::span<const PairMeasurement> pairs,
                     const LinkVerdict& verdict, double least_gbit_per_s) {
  Findings findings;
  const auto name = [&](int host) { return hosts[static_cast<size_t>(host)]; };
  for (const SlowHost& slow : verdict.slow_hosts)
    fail(findings, "slow-host", {name(slow.host)},
         fmt::format(
             "{}: reaches {} to most hosts, where {} is usual; look at its network card, cable, switch "
             "port, and at what else runs there",
             name(slow.host), gbit_text(slow.gbit_per_s), gbit_text(slow.usual)));
  for (const SlowLink& slow : verdict.slow_links)
    fail(
        findings, "slow-link", {name(slow.a), name(slow.b)},
        fmt::format("{} - {}: {}, but each of them reaches {} to other hosts; look at the route between them",
                    name(slow.a), name(slow.b), gbit_text(slow.gbit_per_s), gbit_text(slow.expected)));
  for (const LongHost& far : verdict.long_hosts)
    fail(findings, "long-latency", {name(far.host)},
         fmt::format("{}: a round trip to most hosts takes {}, where {} is usual; look for a busy host or a "
                     "long route",
                     name(far.host), bench::us_text(far.us), bench::us_text(far.usual)));
  for (const LongLink& far : verdict.long_links)
    fail(findings, "long-latency", {name(far.a), name(far.b)},
         fmt::format("{} - {}: a round trip takes {}, {} to other hosts; look at the route between them",
                     name(far.a), name(far.b), bench::us_text(far.us), bench::us_text(far.expected)));
  if (hosts.size() == 1 && least_gbit_per_s > 0)
    advise(findings, "rate", {},
           fmt::format("--min-rate {} was not checked, because {} is the only host that answered; "
                       "name the hosts of the job with -H or --hostfile",
                       gbit_text(least_gbit_per_s), hosts[0]));
  for (const PairMeasurement& pair : pairs) {
    if (!pair.is_right)
      fail(
          findings, "wrong-bytes", {name(pair.a), name(pair.b)},
          fmt::format("{} - {}: bytes arrived that were not sent; do not train here, test memory and network "
                      "cards",
                      name(pair.a), name(pair.b)));
    if (pair.gbit_per_s < least_gbit_per_s)
      fail(findings, "rate", {name(pair.a), name(pair.b)},
           fmt::format("{} - {}: {}, less than the {} that --min-rate demands", name(pair.a), name(pair.b),
                       gbit_text(pair.gbit_per_s), gbit_text(least_gbit_per_s)));
  }
  return findings;
}

Findings check_cards(std::span<const HostFacts> hosts, const LinkVerdict& verdict) {
  Findings findings;
  std::vector<std::string> low;
  std::string example;
  for (size_t host = 0; host < verdict.hosts.size(); ++host) {
    const double reached = verdict.hosts[host].gbit_per_s;
    const double card = static_cast<double>(hosts[host].card_mbit_per_s) / 1e3;
    if (verdict.hosts[host].slowest_with < 0 || reached >= kCardShare * card) continue;
    if (low.empty())
      example = fmt::format("{} reaches {} of {}", hosts[host].host, gbit_text(reached), gbit_text(card));
    low.push_back(hosts[host].host);
  }
  if (!low.empty())
    advise(findings, "card", low,
           fmt::format(
               "{}: less than half the rate of the network card is reached ({}); several ranks on a host, "
               "or RDMA (docs/fabrics.md), may reach more",
               names_text(low), example));
  return findings;
}

bool is_broken(const Findings& findings) { return std::ranges::any_of(findings, &Finding::is_broken); }

std::string names_text(std::span<const std::string> names) {
  constexpr size_t kShown = 4;
  if (names.empty()) return "no host";
  const size_t shown = names.size() > kShown + 1 ? kShown : names.size();
  std::string text = names[0];
  for (size_t i = 1; i < shown; ++i) text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  return shown == names.size() ? text : text + fmt::format(" and {} others", names.size() - shown);
}

std::string gbit_text(double gbit_per_s) {
  const RateUnit unit = rate_unit(gbit_per_s);
  return fmt::format("{} {}", unit.text(gbit_per_s), unit.name);
}

RateUnit rate_unit(double largest_gbit_per_s) {
  return largest_gbit_per_s < 1 ? RateUnit{"Mbit/s", 1e3} : RateUnit{"Gbit/s", 1};
}

std::string RateUnit::text(double gbit_per_s) const {
  const double value = gbit_per_s * of_gbit;
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

}  // namespace rueda::preflight
