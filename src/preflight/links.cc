#include "preflight/links.h"

#include <algorithm>
#include <limits>

#include "bench/statistics.h"

namespace rueda::preflight {
namespace {

constexpr int kLeastHosts = 3;

// The upper median: with as many slow hosts as fast ones, the fast ones are the usual.
double upper_median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}
double lower_median(const std::vector<double>& values) { return bench::percentile(values, 0.5); }

bool is_long(double us, double usual) { return us > kLongFactor * usual && us > usual + kLongerByUs; }

struct Rows {
  std::vector<std::vector<double>> rates, trips;  // of each host
};
Rows rows_of(int hosts, std::span<const PairMeasurement> pairs) {
  Rows rows{.rates = std::vector<std::vector<double>>(static_cast<size_t>(hosts)), .trips = {}};
  rows.trips = rows.rates;
  for (const PairMeasurement& pair : pairs)
    for (const int host : {pair.a, pair.b}) {
      rows.rates[static_cast<size_t>(host)].push_back(pair.gbit_per_s);
      rows.trips[static_cast<size_t>(host)].push_back(pair.round_trip_us);
    }
  return rows;
}

void note_slowest(LinkVerdict& verdict, std::span<const PairMeasurement> pairs) {
  for (HostRates& host : verdict.hosts) host.least_gbit_per_s = std::numeric_limits<double>::infinity();
  for (const PairMeasurement& pair : pairs)
    for (const auto& [host, other] : {std::pair(pair.a, pair.b), std::pair(pair.b, pair.a)}) {
      HostRates& rates = verdict.hosts[static_cast<size_t>(host)];
      if (pair.gbit_per_s >= rates.least_gbit_per_s) continue;
      rates.least_gbit_per_s = pair.gbit_per_s;
      rates.slowest_with = other;
    }
  for (HostRates& host : verdict.hosts)
    if (host.slowest_with < 0) host.least_gbit_per_s = 0;
}

void judge_hosts(LinkVerdict& verdict) {
  for (size_t host = 0; host < verdict.hosts.size(); ++host) {
    const HostRates& rates = verdict.hosts[host];
    if (rates.slowest_with < 0) continue;
    const auto index = static_cast<int>(host);
    if (rates.gbit_per_s < kSlowShare * verdict.usual_gbit_per_s)
      verdict.slow_hosts.push_back(
          {.host = index, .gbit_per_s = rates.gbit_per_s, .usual = verdict.usual_gbit_per_s});
    if (is_long(rates.round_trip_us, verdict.usual_us))
      verdict.long_hosts.push_back({.host = index, .us = rates.round_trip_us, .usual = verdict.usual_us});
  }
}

}  // namespace

LinkVerdict judge_links(int hosts, std::span<const PairMeasurement> pairs) {
  LinkVerdict verdict;
  verdict.hosts.resize(static_cast<size_t>(hosts));
  const Rows rows = rows_of(hosts, pairs);
  std::vector<double> rates, trips;
  for (size_t host = 0; host < verdict.hosts.size(); ++host) {
    if (rows.rates[host].empty()) continue;
    verdict.hosts[host].gbit_per_s = bench::percentile(rows.rates[host], 0.75);
    verdict.hosts[host].round_trip_us = bench::percentile(rows.trips[host], 0.25);
    rates.push_back(verdict.hosts[host].gbit_per_s);
    trips.push_back(verdict.hosts[host].round_trip_us);
  }
  note_slowest(verdict, pairs);
  verdict.usual_gbit_per_s = upper_median(rates);
  verdict.usual_us = lower_median(trips);
  if (hosts < kLeastHosts) return verdict;
  judge_hosts(verdict);
  for (const PairMeasurement& pair : pairs) {
    const HostRates &a = verdict.hosts[static_cast<size_t>(pair.a)],
                    &b = verdict.hosts[static_cast<size_t>(pair.b)];
    const double expected = std::min(a.gbit_per_s, b.gbit_per_s);
    if (pair.gbit_per_s < kSlowShare * expected)
      verdict.slow_links.push_back(
          {.a = pair.a, .b = pair.b, .gbit_per_s = pair.gbit_per_s, .expected = expected});
    const double usual = std::max({a.round_trip_us, b.round_trip_us, verdict.usual_us});
    if (is_long(pair.round_trip_us, usual))
      verdict.long_links.push_back({.a = pair.a, .b = pair.b, .us = pair.round_trip_us, .expected = usual});
  }
  return verdict;
}

double one_way(const PairMeasurement& pair, int from) {
  const double alone = from == pair.a ? pair.forth_gbit_per_s : pair.back_gbit_per_s;
  return alone > 0 ? alone : pair.gbit_per_s;
}

double usual_one_way(const LinkVerdict& verdict, std::span<const PairMeasurement> pairs) {
  const auto is_slow = [&](int host) {
    return std::ranges::find(verdict.slow_hosts, host, &SlowHost::host) != verdict.slow_hosts.end();
  };
  std::vector<double> good, all;
  for (const PairMeasurement& pair : pairs) {
    const bool is_blamed = is_slow(pair.a) || is_slow(pair.b) ||
                           std::ranges::any_of(verdict.slow_links, [&](const SlowLink& link) {
                             return link.a == pair.a && link.b == pair.b;
                           });
    for (const int from : {pair.a, pair.b}) {
      all.push_back(one_way(pair, from));
      if (!is_blamed) good.push_back(all.back());
    }
  }
  return upper_median(good.empty() ? all : good);
}

RoundTrip round_trip_of(double counted_us, double calls_us) {
  const bool is_counted = counted_us > 0 && calls_us <= counted_us + kLongerByUs;
  return {.us = is_counted ? counted_us : std::max(0.0, calls_us), .is_counted = is_counted};
}

void improve(PairMeasurement& known, const PairMeasurement& again) {
  known.gbit_per_s = std::max(known.gbit_per_s, again.gbit_per_s);
  known.forth_gbit_per_s = std::max(known.forth_gbit_per_s, again.forth_gbit_per_s);
  known.back_gbit_per_s = std::max(known.back_gbit_per_s, again.back_gbit_per_s);
  if (again.round_trip_us < known.round_trip_us) {
    known.round_trip_us = again.round_trip_us;
    known.is_counted = again.is_counted;
  }
  known.bytes = std::max(known.bytes, again.bytes);
  known.is_right = known.is_right && again.is_right;
  known.attempts += again.attempts;
}

}  // namespace rueda::preflight
