// Clusters as files: what people write, and what `rueda preflight --json` has measured.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/sizes.h"
#include "simulate/cluster.h"
#include "simulate/quantile.h"
#include "workload/json_text.h"

namespace rueda::simulate {
namespace {

using Json = nlohmann::json;

// Reads one file. The first fault is kept, and what is read after it is of no use.
class Reader {
 public:
  explicit Reader(std::string_view path) : path_(path) {}
  [[nodiscard]] const Status& status() const { return status_; }
  // What the values that follow are of, for people: " of host a"; "" = of the file.
  void look_at(std::string what) { what_ = std::move(what); }
  void refuse(const std::string& why) {
    if (status_.is_ok())
      status_ = {Code::kInvalidArgument,
                 fmt::format("{} is not a cluster: {}; docs/simulate.md describes the file", path_, why)};
  }
  void check_keys(const Json& object, std::string_view where, std::initializer_list<std::string_view> known) {
    if (!object.is_object()) return refuse(fmt::format("{} is not an object", where));
    for (const auto& [key, value] : object.items())
      if (std::ranges::find(known, key) == known.end())
        refuse(
            fmt::format("{} has an unknown key {}", where, Json(key).dump(-1, ' ', /*ensure_ascii=*/true)));
  }
  double number(const Json& object, const char* key, double least, double most, double otherwise) {
    const auto at = object.find(key);
    if (at == object.end()) return otherwise;
    if (at->is_number() && at->get<double>() >= least && at->get<double>() <= most) return at->get<double>();
    refuse(fmt::format("\"{}\"{} is not a number from {} to {}", key, what_, least, most));
    return otherwise;
  }
  int whole(const Json& object, const char* key, int least, int most, int otherwise) {
    const double value = number(object, key, least, most, otherwise);
    if (value != static_cast<int>(value)) refuse(fmt::format("\"{}\"{} is not a whole number", key, what_));
    return static_cast<int>(value);
  }
  // example: of such a text, for people.
  std::string word(const Json& object, const char* key, std::string otherwise, const char* example = "") {
    const auto at = object.find(key);
    if (at == object.end()) return otherwise;
    if (at->is_string() && workload::has_control_character(at->get<std::string>()))
      refuse(fmt::format("\"{}\"{} has a control character", key, what_));
    else if (at->is_string() && !at->get<std::string>().empty())
      return at->get<std::string>();
    refuse(fmt::format("\"{}\"{} is not a text{}", key, what_, example));
    return otherwise;
  }
  double rate(const Json& object, double otherwise, const char* key = "rate") {
    return measure(object, key, otherwise, bench::parse_rate, " such as \"1gbit\"");
  }
  double bytes(const Json& object, const char* key, double otherwise) {
    return measure(object, key, otherwise, bench::parse_bytes, " such as \"64KiB\"");
  }

 private:
  double measure(const Json& object, const char* key, double otherwise,
                 Result<int64_t> (*parse)(std::string_view), const char* example) {
    const std::string text = word(object, key, "", example);
    if (text.empty()) return otherwise;
    const Result<int64_t> value = parse(text);
    if (value.is_ok()) return static_cast<double>(value.value());
    refuse(fmt::format("\"{}\"{}: {}", key, what_, value.status().why));
    return otherwise;
  }

  std::string_view path_;
  std::string what_;
  Status status_;
};

// ends: the names of two hosts.
Link link_between(Reader& reader, const Json& ends) {
  Link link{.from = ends[0].get<std::string>(), .to = ends[1].get<std::string>()};
  if (workload::has_control_character(link.from) || workload::has_control_character(link.to))
    reader.refuse("\"hosts\" of a link has a control character");
  return link;
}

std::string of_link(const Link& link) {
  return fmt::format(" of the link between {} and {}", link.from, link.to);
}

Host read_host(Reader& reader, const Json& one, const Host& like) {
  Host host = like;
  host.name = reader.word(one, "name", like.name);
  reader.look_at(" of host " + host.name);
  host.ranks = reader.whole(one, "ranks", 1, kMostRanks, like.ranks);
  host.cores = reader.whole(one, "cores", 1, 4096, like.cores);
  host.machine = reader.word(one, "machine", like.machine);
  host.speed = reader.number(one, "speed", 1e-3, 1e3, like.speed);
  host.rate_bits = reader.rate(one, like.rate_bits);
  reader.look_at("");
  return host;
}

void read_hosts(Reader& reader, const Json& root, Cluster& cluster) {
  Host like;
  like.ranks = reader.whole(root, "ranks_per_host", 1, kMostRanks, 1);
  like.cores = root.contains("cores") ? reader.whole(root, "cores", 1, 4096, 0) : 0;
  like.machine = reader.word(root, "machine", "");
  const auto hosts = root.find("hosts");
  if (hosts == root.end()) return reader.refuse("it has no \"hosts\"");
  if (hosts->is_number()) {
    const int count = reader.whole(root, "hosts", 1, kMostRanks, 1);
    for (int i = 0; i < count; ++i) {
      like.name = fmt::format("host{}", i);
      cluster.hosts.push_back(like);
    }
    return;
  }
  if (!hosts->is_array()) return reader.refuse("\"hosts\" is neither a number nor a list");
  if (hosts->empty()) return reader.refuse("\"hosts\" names no host");
  if (root.contains("ranks_per_host"))
    return reader.refuse(
        "\"ranks_per_host\" is for a number of hosts that are alike; write \"ranks\" in each entry of "
        "\"hosts\"");
  for (const Json& one : *hosts) {
    reader.check_keys(one, "an entry of \"hosts\"", {"name", "ranks", "cores", "machine", "speed", "rate"});
    if (!reader.status().is_ok()) return;
    like.name = fmt::format("host{}", cluster.hosts.size());
    cluster.hosts.push_back(read_host(reader, one, like));
  }
}

void read_links(Reader& reader, const Json& root, Cluster& cluster) {
  const auto links = root.find("links");
  if (links == root.end()) return;
  if (!links->is_array()) return reader.refuse("\"links\" is not a list");
  for (const Json& one : *links) {
    reader.check_keys(one, "an entry of \"links\"", {"hosts", "rate", "latency_us"});
    const auto ends = one.find("hosts");
    const bool is_pair = ends != one.end() && ends->is_array() && ends->size() == 2 &&
                         (*ends)[0].is_string() && (*ends)[1].is_string() && (*ends)[0] != (*ends)[1];
    if (!is_pair) return reader.refuse("\"hosts\" of a link are not the names of two hosts");
    Link link = link_between(reader, *ends);
    reader.look_at(of_link(link));
    link.rate_bits = reader.rate(one, 0);
    link.latency_us = reader.number(one, "latency_us", 0, 1e6, -1);
    reader.look_at("");
    cluster.links.push_back(std::move(link));
  }
}

void read_tiers(Reader& reader, const Json& root, Cluster& cluster) {
  const auto tiers = root.find("tiers");
  if (tiers == root.end()) return;
  if (!tiers->is_array()) return reader.refuse("\"tiers\" is not a list");
  for (const Json& one : *tiers) {
    reader.check_keys(one, "an entry of \"tiers\"", {"hosts", "oversubscription", "rate"});
    if (!reader.status().is_ok()) return;
    if (one.contains("oversubscription") == one.contains("rate"))
      return reader.refuse("an entry of \"tiers\" needs either \"oversubscription\" or \"rate\"");
    cluster.tiers.push_back(
        {.hosts = reader.whole(one, "hosts", kLeastSwitch, kMostRanks, kLeastSwitch),
         .oversubscription = reader.number(one, "oversubscription", 1, kMostOversubscription, 1),
         .rate_bits = reader.rate(one, 0)});
  }
  if (const Status status = check_tiers(cluster.tiers); !status.is_ok()) reader.refuse(status.why);
}

void read_costs(Reader& reader, const Json& root, Costs& costs) {
  const auto given = root.find("costs");
  if (given == root.end()) return;
  reader.check_keys(*given, "\"costs\"",
                    {"submit_us", "call_us", "wake_us", "message_us", "byte_ns", "copy_gbps", "payload",
                     "control_us", "slow_share"});
  if (!given->is_object()) return;
  for (const CostField& field : kCostFields)
    costs.*field.field =
        reader.number(*given, field.name.data(), field.least, field.most, costs.*field.field);
}

// What a port of a token bucket lets through; without a peak as fast as between ranks of a host, which is how
// network namespaces do it.
void read_burst(Reader& reader, const Json& link, Cluster& cluster) {
  constexpr double kFrame = 1514;
  for (const char* key : {"burst", "peak"})
    if (cluster.kind != "tbf" && link.contains(key))
      return reader.refuse(fmt::format("\"{}\" is for links of kind tbf", key));
  if (cluster.kind != "tbf") return;
  if (!link.contains("rate") || !link.contains("burst"))
    return reader.refuse("a \"link\" of kind tbf needs \"rate\" and \"burst\", 1gbit and 128KiB for example");
  cluster.burst_bytes = reader.bytes(link, "burst", 0);
  cluster.peak_bits = reader.rate(link, 8e9 * cluster.within.bandwidth_gbps, "peak");
  if (cluster.burst_bytes < kFrame && reader.status().is_ok())
    reader.refuse(fmt::format("\"burst\" is less than a frame of {} bytes, so nothing would pass", kFrame));
}

void read_link(Reader& reader, const Json& root, Cluster& cluster) {
  const auto link = root.find("link");
  if (link == root.end()) return;
  reader.check_keys(*link, "\"link\"", {"kind", "rate", "latency_us", "burst", "peak"});
  if (!reader.status().is_ok()) return;
  const std::string kind = reader.word(*link, "kind", "tcp");
  if (kind == "nvlink" || kind == "pcie" || kind == "shm")
    return reader.refuse(fmt::format("\"kind\": {} is inside a host; write it in \"within\"", kind));
  if (kind != "tcp" && kind != "rdma" && kind != "tbf")
    return reader.refuse(fmt::format("\"kind\": {} is none of tcp, rdma and tbf", kind));
  use_kind(cluster, kind);
  cluster.rate_bits = reader.rate(*link, cluster.rate_bits);
  cluster.latency_us = reader.number(*link, "latency_us", 0, 1e6, cluster.latency_us);
  read_burst(reader, *link, cluster);
}

// nvlink and pcie are between GPUs, so calls are NCCL's.
void read_within(Reader& reader, const Json& root, Cluster& cluster) {
  cluster.gpus = reader.word(root, "gpus", "");
  if (!cluster.gpus.empty() && cluster.gpus != "nvlink" && cluster.gpus != "pcie")
    return reader.refuse(fmt::format("\"gpus\": {} is neither nvlink nor pcie", cluster.gpus));
  const auto within = root.find("within");
  if (within == root.end()) return;
  reader.check_keys(*within, "\"within\"", {"kind", "rate", "latency_us"});
  if (!reader.status().is_ok()) return;
  cluster.within.bandwidth_gbps = reader.rate(*within, 8e9 * cluster.within.bandwidth_gbps) / 8e9;
  cluster.within.latency_us = reader.number(*within, "latency_us", 0, 1e6, cluster.within.latency_us);
  const std::string kind = reader.word(*within, "kind", cluster.gpus.empty() ? "shm" : cluster.gpus);
  if (kind != "shm" && kind != "nvlink" && kind != "pcie")
    return reader.refuse(fmt::format("\"kind\": {} of \"within\" is none of shm, nvlink and pcie", kind));
  if (!cluster.gpus.empty() && kind != cluster.gpus)
    return reader.refuse(
        fmt::format("\"gpus\" says {}, and \"kind\" of \"within\" says {}", cluster.gpus, kind));
  if (kind != "shm") cluster.gpus = kind;
}

Cluster parse_own(Reader& reader, const Json& root) {
  Cluster cluster;
  reader.check_keys(root, "it",
                    {"hosts", "ranks_per_host", "cores", "machine", "link", "within", "links", "tiers",
                     "reduce_gbps", "gpus", "costs", "comment"});
  if (!reader.status().is_ok()) return cluster;
  read_hosts(reader, root, cluster);
  read_within(reader, root, cluster);
  read_link(reader, root, cluster);
  read_links(reader, root, cluster);
  read_tiers(reader, root, cluster);
  read_costs(reader, root, cluster.costs);
  cluster.reduce_gbps = reader.number(root, "reduce_gbps", 1e-3, 1e6, cluster.reduce_gbps);
  return cluster;
}

// What `rueda preflight --json` has measured: the rates of payload, pair by pair.
Cluster parse_preflight(Reader& reader, const Json& root) {
  Cluster cluster;
  cluster.is_payload = true;
  std::vector<double> within;
  for (const Json& one : root["hosts"]) {
    Host host;
    host.name = reader.word(one, "host", "");
    host.cores = reader.whole(one, "cores", 1, 4096, 0);
    if (host.name.empty()) reader.refuse("a host has no name");
    if (const auto rate = one.find("within_gbit_per_s"); rate != one.end() && rate->is_number())
      within.push_back(rate->get<double>() / 8);
    cluster.hosts.push_back(std::move(host));
  }
  if (cluster.hosts.empty()) reader.refuse("no host answered to that preflight");
  if (!within.empty()) cluster.within.bandwidth_gbps = quantile(within, 0.5);
  std::vector<double> rates, latencies;
  for (const Json& one : root["links"]) {
    const Json& ends = one.contains("hosts") ? one["hosts"] : Json();
    const bool is_pair = ends.is_array() && ends.size() == 2 && ends[0].is_string() && ends[1].is_string();
    Link link;
    if (is_pair) link = link_between(reader, ends);
    reader.look_at(is_pair ? of_link(link) : "");
    link.rate_bits = reader.number(one, "gbit_per_s", 1e-6, 1e6, 0) * 1e9;
    reader.look_at("");
    if (!is_pair || link.rate_bits <= 0) continue;
    if (one.contains("round_trip_us") && one["round_trip_us"].is_number())
      latencies.push_back(link.latency_us = reader.number(one, "round_trip_us", 0, 1e9, 0) / 2);
    rates.push_back(link.rate_bits);
    cluster.links.push_back(std::move(link));
  }
  if (rates.empty() && cluster.hosts.size() > 1)
    reader.refuse("that preflight measured no link between its hosts; run rueda preflight again");
  if (!rates.empty()) cluster.rate_bits = quantile(rates, 0.5);
  if (!latencies.empty()) cluster.latency_us = quantile(latencies, 0.5);
  const int ranks = reader.whole(root, "ranks", 1, kMostRanks, 1),
            hosts = static_cast<int>(cluster.hosts.size());
  for (int i = 0; i < hosts; ++i)
    cluster.hosts[i].ranks = std::max(1, ranks / hosts + (i < ranks % hosts ? 1 : 0));
  return cluster;
}

void check(Reader& reader, const Cluster& cluster) {
  std::set<std::string> names;
  std::map<std::string, int32_t> cores;
  for (const Host& host : cluster.hosts) {
    if (!names.insert(host.name).second) reader.refuse(fmt::format("two hosts are called {}", host.name));
    const std::string& machine = host.machine.empty() ? host.name : host.machine;
    if (const auto [at, is_new] = cores.emplace(machine, host.cores); at->second != host.cores)
      reader.refuse(
          fmt::format("its hosts say that machine {} has {} and {} cores", machine, at->second, host.cores));
    if (!host.machine.empty() && host.cores == 0)
      reader.refuse(
          fmt::format("host {} is on machine {}, whose \"cores\" it does not say", host.name, machine));
  }
  std::set<std::pair<std::string, std::string>> pairs;
  for (const Link& link : cluster.links) {
    for (const std::string& end : {link.from, link.to})
      if (!names.contains(end)) reader.refuse(fmt::format("a link names {}, which is no host", end));
    if (!pairs.insert(std::minmax(link.from, link.to)).second)
      reader.refuse(fmt::format("the link between {} and {} is described twice", link.from, link.to));
  }
  if (const Status status = check_burst(cluster); !status.is_ok()) reader.refuse(status.why);
  if (cluster.ranks() > kMostRanks)
    reader.refuse(
        fmt::format("it has {} ranks, more than the {} that are simulated", cluster.ranks(), kMostRanks));
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view json, std::string_view path) {
  Reader reader(path);
  const Result<Json> parsed = workload::parse_json(json);
  if (!parsed.is_ok() || !parsed.value().is_object()) {
    reader.refuse(parsed.is_ok() ? "it is not a JSON object" : parsed.status().why);
    return reader.status();
  }
  const Json& root = parsed.value();
  const bool is_preflight = root.contains("asked") && root.contains("findings") && root.contains("hosts") &&
                            root["hosts"].is_array() && root.contains("links") && root["links"].is_array();
  Cluster cluster = is_preflight ? parse_preflight(reader, root) : parse_own(reader, root);
  cluster.source = std::string(path) + (is_preflight ? " (measured by rueda preflight)" : "");
  if (reader.status().is_ok()) check(reader, cluster);
  if (!reader.status().is_ok()) return reader.status();
  return cluster;
}

Result<Cluster> read_cluster(const std::string& path) {
  const Result<std::string> text = workload::read_text(path, "cluster");
  return text.is_ok() ? parse_cluster(text.value(), path) : text.status();
}

}  // namespace rueda::simulate
