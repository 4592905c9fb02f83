// Which place costs a step most: each one that is slower than its like is taken away in turn, and the step is
// predicted again. Several that are slow in the same way hide behind each other, so all of a kind are also
// taken away together.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "bench/sizes.h"
#include "simulate/quantile.h"
#include "simulate/runs.h"

namespace rueda::simulate {
namespace {

constexpr double kSlower = 1.03;      // times: less is not worth a simulation
constexpr size_t kMostSingle = 4;     // of a kind, those that differ most
constexpr double kLeastGain = 0.01;   // of a step: less is not told
constexpr double kEnoughAlone = 0.8;  // of what all of a kind cost: then the single one is to blame

// What is left of a request without some of what is slow.
struct Without {
  Cluster cluster;
  std::vector<bench::LateRank> late;
};

struct Suspect {
  Culprit culprit;
  double times = 1;  // slower than its like
  std::function<void(Without&)> take_away;
};

Host& host_called(Cluster& cluster, const std::string& name) {
  return *std::ranges::find(cluster.hosts, name, &Host::name);
}

std::string rate_of(double bits) { return bench::rate_text(static_cast<int64_t>(bits)); }

void add_ports(const Cluster& cluster, std::vector<Suspect>& all) {
  std::vector<double> rates;
  for (const Host& host : cluster.hosts)
    rates.push_back(host.rate_bits > 0 ? host.rate_bits : cluster.rate_bits);
  const double usual = quantile(rates, 0.5);
  for (size_t i = 0; i < rates.size(); ++i) {
    const std::string& name = cluster.hosts[i].name;
    all.push_back(
        {.culprit = {.kind = "port",
                     .where = {name},
                     .text = fmt::format("the port of host {}, {}", name, rate_of(rates[i]))},
         .times = usual / rates[i],
         .take_away = [name, usual](Without& rest) { host_called(rest.cluster, name).rate_bits = usual; }});
  }
}

bool is_between(const Link& link, const std::string& one, const std::string& other) {
  return std::minmax(link.from, link.to) == std::minmax(one, other);
}

void add_links(const Cluster& cluster, std::vector<Suspect>& all) {
  for (const Link& link : cluster.links) {
    const double slower = link.rate_bits > 0 ? cluster.rate_bits / link.rate_bits : 1;
    const double later = link.latency_us > 0 ? link.latency_us / std::max(cluster.latency_us, 1.0) : 1;
    std::string text = fmt::format("the link between hosts {} and {}", link.from, link.to);
    if (slower > kSlower) text += ", " + rate_of(link.rate_bits);
    if (later > kSlower) text += fmt::format(", {:g} us one way", link.latency_us);
    all.push_back({.culprit = {.kind = "link", .where = {link.from, link.to}, .text = std::move(text)},
                   .times = std::max(slower, later),
                   .take_away = [from = link.from, to = link.to](Without& rest) {
                     std::erase_if(rest.cluster.links,
                                   [&](const Link& other) { return is_between(other, from, to); });
                   }});
  }
}

// Where all links were measured, a slow port shows as a host whose links are all slow.
void add_hosts_of_slow_links(const Cluster& cluster, std::vector<Suspect>& all) {
  std::map<std::string, std::vector<double>> rates;
  for (const Link& link : cluster.links)
    if (link.rate_bits > 0)
      for (const std::string& end : {link.from, link.to}) rates[end].push_back(link.rate_bits);
  for (const auto& [name, of_links] : rates) {
    const double fastest = std::ranges::max(of_links);
    if (of_links.size() < 2 || of_links.size() + 1 < cluster.hosts.size()) continue;
    all.push_back({.culprit = {.kind = "port",
                               .where = {name},
                               .text = fmt::format("the port of host {}, {}", name, rate_of(fastest))},
                   .times = cluster.rate_bits / fastest,
                   .take_away = [name](Without& rest) {
                     std::erase_if(rest.cluster.links,
                                   [&](const Link& link) { return link.from == name || link.to == name; });
                   }});
  }
}

void add_tiers(const Cluster& cluster, std::vector<Suspect>& all) {
  for (size_t i = 0; i < cluster.tiers.size(); ++i) {
    const SwitchTier& tier = cluster.tiers[i];
    const double ports = tier.hosts * cluster.rate_bits;
    all.push_back({.culprit = {.kind = "tier",
                               .where = {std::to_string(i)},
                               .text = "the uplinks of " + tiers_text({tier})},
                   .times = tier.rate_bits > 0 ? ports / tier.rate_bits : tier.oversubscription,
                   .take_away = [i](Without& rest) {
                     rest.cluster.tiers[i].oversubscription = 1;
                     rest.cluster.tiers[i].rate_bits = 0;
                   }});
  }
}

void add_speeds(const Cluster& cluster, std::vector<Suspect>& all) {
  std::vector<double> speeds;
  for (const Host& host : cluster.hosts) speeds.push_back(host.speed);
  const double usual = quantile(speeds, 0.5);
  for (const Host& host : cluster.hosts)
    all.push_back({.culprit = {.kind = "speed",
                               .where = {host.name},
                               .text = fmt::format("host {}, which computes {:.0f} % longer", host.name,
                                                   100 * (usual / host.speed - 1))},
                   .times = usual / host.speed,
                   .take_away = [name = host.name, usual](Without& rest) {
                     host_called(rest.cluster, name).speed = usual;
                   }});
}

void add_late_ranks(const std::vector<bench::LateRank>& late, std::vector<Suspect>& all) {
  for (const bench::LateRank& one : late)
    all.push_back(
        {.culprit = {.kind = "rank",
                     .where = {std::to_string(one.rank)},
                     .text =
                         fmt::format("rank {}, which computes {:.0f} % longer", one.rank, 100 * one.share)},
         .times = 1 + one.share,
         .take_away = [rank = one.rank](Without& rest) {
           std::erase_if(rest.late, [&](const bench::LateRank& other) { return other.rank == rank; });
         }});
}

// A rank keeps at most one core busy, so more than one for each changes nothing.
void add_cores(const Cluster& cluster, std::vector<Suspect>& all) {
  std::map<std::string, std::vector<const Host*>> machines;
  for (const Host& host : cluster.hosts)
    machines[host.machine.empty() ? host.name : host.machine].push_back(&host);
  for (const auto& [machine, hosts] : machines) {
    int ranks = 0;
    std::vector<std::string> names;
    for (const Host* host : hosts) {
      ranks += host->ranks;
      names.push_back(host->name);
    }
    const int cores = hosts.front()->cores > 0 ? hosts.front()->cores : ranks;
    all.push_back({.culprit = {.kind = "cores",
                               .where = names,
                               .text = fmt::format(
                                   "{} core{} for {} ranks of {} {}", cores, cores == 1 ? "" : "s", ranks,
                                   hosts.front()->machine.empty() ? "host" : "machine", machine)},
                   .times = static_cast<double>(ranks) / cores,
                   .take_away = [names, ranks](Without& rest) {
                     for (const std::string& name : names) host_called(rest.cluster, name).cores = ranks;
                   }});
  }
}

std::string group_text(const std::string& kind, size_t count) {
  if (kind == "port") return fmt::format("the slow ports of {} hosts", count);
  if (kind == "link") return fmt::format("{} slow links between hosts", count);
  if (kind == "tier") return fmt::format("the uplinks of {} tiers of switches", count);
  if (kind == "speed") return fmt::format("{} hosts that compute longer", count);
  if (kind == "rank") return fmt::format("{} ranks that compute longer", count);
  return fmt::format("fewer cores than ranks on {} machines", count);
}

// All of a kind, where there are several.
Suspect together(const std::vector<Suspect>& all) {
  Suspect group = all.front();
  group.culprit.where.clear();
  for (const Suspect& one : all)
    std::ranges::copy(one.culprit.where, std::back_inserter(group.culprit.where));
  group.culprit.text = group_text(group.culprit.kind, all.size());
  group.take_away = [all](Without& rest) {
    for (const Suspect& one : all) one.take_away(rest);
  };
  return group;
}

// [kind] those that are slower than their like, the slowest first.
std::map<std::string, std::vector<Suspect>> suspects_of(const Cluster& cluster,
                                                        const std::vector<bench::LateRank>& late) {
  std::vector<Suspect> all;
  add_ports(cluster, all);
  add_links(cluster, all);
  add_hosts_of_slow_links(cluster, all);
  add_tiers(cluster, all);
  add_speeds(cluster, all);
  add_late_ranks(late, all);
  add_cores(cluster, all);
  std::map<std::string, std::vector<Suspect>> kinds;
  for (Suspect& one : all)
    if (one.times > kSlower) kinds[one.culprit.kind].push_back(std::move(one));
  for (auto& [kind, of_kind] : kinds)
    std::ranges::stable_sort(of_kind, std::ranges::greater(), &Suspect::times);
  return kinds;
}

}  // namespace

Result<std::vector<Culprit>> find_culprits(const Request& request, const Cluster& cluster,
                                           const control::BucketWay& way, int steps) {
  const Without everything{.cluster = cluster, .late = request.late};
  std::vector<Suspect> suspects;
  const auto kinds = suspects_of(cluster, request.late);
  for (const auto& [kind, of_kind] : kinds)
    std::copy_n(of_kind.begin(), std::min(of_kind.size(), kMostSingle), std::back_inserter(suspects));
  const size_t alone = suspects.size();  // the others are groups
  for (const auto& [kind, of_kind] : kinds)
    if (of_kind.size() > 1) suspects.push_back(together(of_kind));
  if (suspects.empty()) return std::vector<Culprit>();
  const auto mean_ms = [&](const Without& rest) -> Result<double> {
    Case one(request, rest.cluster, rest.late);
    one.way = way;
    const Result<CaseRun> run = run_case(one, kAllCauses, steps);
    if (!run.is_ok()) return run.status();
    return run.value().mean_ms();
  };
  const Result<double> step_ms = mean_ms(everything);
  if (!step_ms.is_ok()) return step_ms.status();
  std::vector<Culprit> found;
  double most = 0;  // that one alone costs
  for (size_t i = 0; i < suspects.size(); ++i) {
    Without rest = everything;
    suspects[i].take_away(rest);
    const Result<double> ms = mean_ms(rest);
    if (!ms.is_ok()) return ms.status();
    Culprit& culprit = suspects[i].culprit;
    culprit.gain_ms = step_ms.value() - ms.value();
    if (i < alone) most = std::max(most, culprit.gain_ms);
    const bool is_told = i < alone || most < kEnoughAlone * culprit.gain_ms;
    if (is_told && culprit.gain_ms >= kLeastGain * step_ms.value()) found.push_back(std::move(culprit));
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Culprit::gain_ms);
  return found;
}

}  // namespace rueda::simulate
