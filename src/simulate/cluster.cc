#include "simulate/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "bench/sizes.h"
#include "rueda/base/numbers.h"

namespace rueda::simulate {
namespace {

// From the hosts up. A switch that lacks hosts has the uplink of a full one.
std::vector<schedule::Tier> lay_out_tiers(const Cluster& cluster, const std::vector<double>& port_gbps,
                                          const std::function<double(double)>& gbps) {
  std::vector<schedule::Tier> all;
  std::vector<double> below = port_gbps;   // what each port or uplink below carries
  double usual = gbps(cluster.rate_bits);  // … and one that is not there
  size_t hosts_below = 1;
  for (const SwitchTier& tier : cluster.tiers) {
    const auto hosts = static_cast<size_t>(tier.hosts), each = hosts / hosts_below;
    schedule::Tier out;
    for (size_t host = 0; host < port_gbps.size(); ++host)
      out.switch_of.push_back(static_cast<int32_t>(host / hosts));
    const auto uplink = [&](double carried) {
      return tier.rate_bits > 0 ? gbps(tier.rate_bits) : carried / tier.oversubscription;
    };
    for (size_t begin = 0; begin < below.size(); begin += each) {
      double carried = 0;
      for (size_t i = begin; i < begin + each; ++i) carried += i < below.size() ? below[i] : usual;
      out.uplink_gbps.push_back(uplink(carried));
    }
    usual = uplink(static_cast<double>(each) * usual);
    below = out.uplink_gbps;
    hosts_below = hosts;
    all.push_back(std::move(out));
  }
  return all;
}

// Ports that have a burst, and links that carry it, except those that have a rate of their own.
void give_bursts(const Cluster& cluster, const std::function<double(double)>& gbps,
                 schedule::Network& network) {
  if (cluster.burst_bytes <= 0) return;
  network.bursts.assign(cluster.hosts.size(),
                        {.bytes = cluster.burst_bytes, .gbps = gbps(cluster.peak_bits)});
  const auto hosts = static_cast<int32_t>(cluster.hosts.size());
  std::map<std::pair<std::string, std::string>, double> own;  // bits per second
  for (const Link& link : cluster.links) own[std::minmax(link.from, link.to)] = link.rate_bits;
  for (int32_t from = 0; from < hosts; ++from)
    for (int32_t to = 0; to < hosts; ++to) {
      const auto at = own.find(std::minmax(cluster.hosts[from].name, cluster.hosts[to].name));
      if (from != to && (at == own.end() || at->second <= 0))
        network.link(from, to).bandwidth_gbps = gbps(cluster.peak_bits);
    }
}

}  // namespace

int Cluster::ranks() const {
  int sum = 0;
  for (const Host& host : hosts) sum += host.ranks;
  return sum;
}

// RDMA moves bytes without the cores of either end. Only tbf has a burst.
void use_kind(Cluster& cluster, const std::string& kind) {
  if (kind == "rdma") {
    cluster.costs.byte_ns = 0;
    cluster.costs.message_us = std::min(cluster.costs.message_us, 1.0);
    if (cluster.kind != kind) cluster.latency_us = kRdmaLatencyUs;
  }
  if (kind != "tbf") cluster.burst_bytes = cluster.peak_bits = 0;
  cluster.kind = kind;
}

Status check_burst(const Cluster& cluster) {
  if (cluster.kind != "tbf") return Status::ok();
  if (!cluster.gpus.empty())
    return {Code::kInvalidArgument,
            "links of kind tbf carry calls in host memory, and \"gpus\" has NCCL's; leave out one of them"};
  double fastest = cluster.rate_bits;
  for (const Host& host : cluster.hosts) fastest = std::max(fastest, host.rate_bits);
  if (cluster.peak_bits > fastest) return Status::ok();
  const auto text = [](double bits) { return bench::rate_text(static_cast<int64_t>(bits)); };
  return {Code::kInvalidArgument,
          fmt::format("a burst goes at {}, which is not more than the rate of {}; give a faster \"peak\", or "
                      "kind tcp",
                      text(cluster.peak_bits), text(fastest))};
}

Status check_tiers(const std::vector<SwitchTier>& tiers) {
  for (size_t i = 1; i < tiers.size(); ++i)
    if (tiers[i].hosts <= tiers[i - 1].hosts || tiers[i].hosts % tiers[i - 1].hosts != 0)
      return {
          Code::kInvalidArgument,
          fmt::format("a tier of switches over {} hosts is above one over {}; each must have some times as "
                      "many hosts as the one below it",
                      tiers[i].hosts, tiers[i - 1].hosts)};
  return Status::ok();
}

Result<std::vector<SwitchTier>> parse_tiers(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, why + "; write HOSTS:OVERSUBSCRIPTION for each tier, 8:4,32:2");
  };
  const Result<std::vector<std::string>> words = bench::parse_words(text);
  if (!words.is_ok()) return words.status();
  std::vector<SwitchTier> tiers;
  for (const std::string& word : words.value()) {
    const size_t colon = std::min(word.find(':'), word.size());
    const std::optional<int> hosts = number_of<int>(word.substr(0, colon));
    const std::optional<double> times = number_of<double>(word.substr(std::min(colon + 1, word.size())));
    if (!hosts || *hosts < kLeastSwitch || *hosts > kMostRanks)
      return refuse(fmt::format("{} does not begin with a number of hosts from {} to {}", word, kLeastSwitch,
                                kMostRanks));
    if (!times || !(*times >= 1 && *times <= kMostOversubscription))
      return refuse(fmt::format("{} does not end with a number from 1 to {}", word, kMostOversubscription));
    tiers.push_back({.hosts = *hosts, .oversubscription = *times});
  }
  if (const Status status = check_tiers(tiers); !status.is_ok()) return status;
  return tiers;
}

std::string tiers_text(const std::vector<SwitchTier>& tiers) {
  std::string text;
  for (const SwitchTier& tier : tiers)
    text += fmt::format("{}switches over {} hosts, {}", text.empty() ? "" : "; ", tier.hosts,
                        tier.rate_bits > 0
                            ? "uplinks of " + bench::rate_text(static_cast<int64_t>(tier.rate_bits))
                            : fmt::format("{:g}:1", tier.oversubscription));
  return text;
}

Result<Cluster> change(Cluster cluster, const Changes& changes) {
  if (changes.kind && cluster.kind == "tbf" && *changes.kind != "tbf")
    return Status(
        Code::kInvalidArgument,
        fmt::format("--{} contradicts {}, whose links are token buckets (kind tbf), which {} does not "
                    "have; leave it out, or change \"kind\" there",
                    *changes.kind, cluster.source, *changes.kind));
  if (changes.kind) use_kind(cluster, *changes.kind);
  if (changes.rate_bits || changes.latency_us) {  // of all links: what single ones had is over
    cluster.links.clear();
    for (Host& host : cluster.hosts) host.rate_bits = 0;
  }
  if (changes.rate_bits) cluster.is_payload = false;
  if (changes.tiers) cluster.tiers = *changes.tiers;
  cluster.rate_bits = changes.rate_bits.value_or(cluster.rate_bits);
  if (const Status status = check_burst(cluster); !status.is_ok()) return status;
  cluster.latency_us = changes.latency_us.value_or(cluster.latency_us);
  if (changes.per_host)
    for (Host& host : cluster.hosts) host.ranks = *changes.per_host;
  if (cluster.ranks() > kMostRanks && !changes.ranks)
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} hosts of {} ranks are {} ranks, more than the {} that are simulated; give "
                    "fewer --hosts or --per-host",
                    cluster.hosts.size(), cluster.hosts.front().ranks, cluster.ranks(), kMostRanks));
  if (!changes.ranks || *changes.ranks == cluster.ranks()) return cluster;
  const int per_host = cluster.hosts.front().ranks;
  if (std::ranges::any_of(cluster.hosts, [&](const Host& host) { return host.ranks != per_host; }))
    return Status(
        Code::kInvalidArgument,
        fmt::format("hosts of {} have different numbers of ranks, so it is not clear where {} ranks are; "
                    "give --per-host as well",
                    cluster.source, *changes.ranks));
  if (*changes.ranks % per_host != 0 && *changes.ranks > per_host)
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ranks do not fill hosts of {} ranks; give --per-host as well",
                              *changes.ranks, per_host));
  const auto hosts = static_cast<size_t>(std::max(1, *changes.ranks / per_host));
  while (cluster.hosts.size() < hosts) {
    Host another = cluster.hosts.front();
    another.name = fmt::format("{}+{}", another.name, cluster.hosts.size());
    cluster.hosts.push_back(std::move(another));
  }
  cluster.hosts.resize(hosts);
  if (*changes.ranks < per_host) cluster.hosts.front().ranks = *changes.ranks;
  const auto has = [&](const std::string& name) {
    return std::ranges::find(cluster.hosts, name, &Host::name) != cluster.hosts.end();
  };
  std::erase_if(cluster.links, [&](const Link& link) { return !has(link.from) || !has(link.to); });
  return cluster;
}

Layout lay_out(const Cluster& cluster) {
  const auto gbps = [&](double bits) {
    return bits * (cluster.is_payload ? 1 : cluster.costs.payload) / 8e9;
  };
  Layout layout;
  std::map<std::string, int32_t> machines, numbers;
  bool is_limited = false;
  for (size_t i = 0; i < cluster.hosts.size(); ++i) {
    const Host& host = cluster.hosts[i];
    for (int k = 0; k < host.ranks; ++k) layout.topology.host_of.push_back(static_cast<int32_t>(i));
    numbers.emplace(host.name, static_cast<int32_t>(i));
    const std::string& machine = host.machine.empty() ? host.name : host.machine;
    const auto [at, is_new] = machines.emplace(machine, static_cast<int32_t>(machines.size()));
    layout.machine_of.push_back(at->second);
    if (is_new) layout.cores.push_back(host.cores > 0 ? host.cores : 4096);
    is_limited = is_limited || host.cores > 0;
  }
  if (!is_limited) layout.machine_of.clear();
  layout.gpus = cluster.gpus;
  layout.topology.local = cluster.within;
  layout.topology.remote = {.latency_us = cluster.latency_us, .bandwidth_gbps = gbps(cluster.rate_bits)};
  layout.topology.reduce_gbps = cluster.reduce_gbps;
  layout.network = schedule::Network::uniform(layout.topology);
  for (size_t i = 0; i < cluster.hosts.size(); ++i)
    if (const double bits = cluster.hosts[i].rate_bits; bits > 0) layout.network.port_gbps[i] = gbps(bits);
  for (const Link& link : cluster.links)
    for (const auto& [from, to] : {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
      schedule::LinkCost& cost = layout.network.link(numbers.at(from), numbers.at(to));
      if (link.rate_bits > 0) cost.bandwidth_gbps = gbps(link.rate_bits);
      if (link.latency_us >= 0) cost.latency_us = link.latency_us;
    }
  give_bursts(cluster, gbps, layout.network);
  // A link is never faster than the ports at its ends, nor a port than its fastest link.
  const auto hosts = static_cast<int32_t>(cluster.hosts.size());
  for (int32_t from = 0; from < hosts; ++from) {
    double fastest = 0;
    for (int32_t to = 0; to < hosts; ++to)
      if (to != from) fastest = std::max(fastest, layout.network.link(from, to).bandwidth_gbps);
    if (cluster.hosts[from].rate_bits <= 0 && fastest > 0 && layout.network.bursts.empty())
      layout.network.port_gbps[from] = fastest;
  }
  for (int32_t from = 0; from < hosts; ++from)
    for (int32_t to = 0; to < hosts; ++to) {
      if (from == to) continue;
      double& rate = layout.network.link(from, to).bandwidth_gbps;
      rate = std::min({rate, layout.network.fastest_gbps(from), layout.network.fastest_gbps(to)});
    }
  layout.network.tiers = lay_out_tiers(cluster, layout.network.port_gbps, gbps);
  return layout;
}

}  // namespace rueda::simulate
