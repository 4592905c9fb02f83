#include "preflight/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "preflight/exchange.h"
#include "preflight/findings.h"
#include "preflight/inspect.h"
#include "preflight/pairing.h"
#include "rueda/base/clock.h"

namespace rueda::preflight {
namespace {

constexpr int kBarriers = 12;    // for the clocks
constexpr int kRoundTrips = 15;  // the fastest of so many
constexpr int64_t kSmallBytes = 8;
constexpr int64_t kWithinBytes = int64_t{16} << 20;
constexpr int kWithinTimes = 3;
constexpr int kMostRepeats = 8;  // rounds in which slow links get a second chance
constexpr int kChances = 2;
constexpr int kWayTimes = 3;  // one way, the best of so many, unless one takes long
constexpr int64_t kLongWayNs = 200'000'000;
constexpr double kWaitingLimitS = 3600;  // of the ranks that only wait for the first ranks of their hosts

// Who takes part, the same on all ranks.
struct Members {
  std::vector<int32_t> firsts;   // the first rank of each host
  std::vector<int32_t> seconds;  // the second one; -1 = none
  std::vector<HostFacts> facts;
  [[nodiscard]] int host_of(int32_t rank) const {
    const auto found = std::ranges::find(firsts, rank);
    return found == firsts.end() ? -1 : static_cast<int>(found - firsts.begin());
  }
};

// Collective. Every rank says where it is; first ranks add what they found there.
Result<Members> meet(bench::Rank& rank, const std::string& own_path) {
  const std::string host = rank.host();
  const bool is_first = rank.local_rank() == 0;
  nlohmann::ordered_json mine = {{"host", host}, {"local_rank", rank.local_rank()}};
  if (is_first) mine["facts"] = encode(inspect_host(host, own_path));
  const Result<std::string> all =
      rank.gather_text(mine.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  if (!all.is_ok()) return all.status();
  Members members;
  std::map<std::string, std::array<int32_t, 2>> places;  // the first two ranks of each host
  std::istringstream lines(all.value());
  int32_t number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const auto said = nlohmann::json::parse(line, nullptr, false);
    if (!said.is_object())
      return Status(Code::kInternal, fmt::format("rank {} said something else than JSON", number));
    const int local = said.value("local_rank", -1);
    if (local == 0 || local == 1) {
      auto& two = places.try_emplace(said.value("host", ""), std::array<int32_t, 2>{-1, -1}).first->second;
      two.at(static_cast<size_t>(local)) = number;
    }
    if (local != 0) continue;
    Result<HostFacts> facts = decode_facts(said.value("facts", ""));
    if (!facts.is_ok()) return facts.status();
    members.firsts.push_back(number);
    members.facts.push_back(std::move(facts).value());
  }
  for (size_t i = 0; i < members.firsts.size(); ++i) {
    const auto& two = places[members.facts[i].host];
    members.seconds.push_back(two[0] == members.firsts[i] ? two[1] : -1);  // else two hosts have one name
  }
  return members;
}

// ---- inside a host ----

// Collective in a set of two ranks.
Result<double> measure_two(bench::Rank& rank, bench::ProcessSet set, int partner) {
  Result<PairExchange> exchange = PairExchange::make(rank, set);
  if (!exchange.is_ok()) return exchange.status();
  int64_t best = INT64_MAX;
  for (int i = 0; i <= kWithinTimes; ++i) {  // the first warms up
    const Result<int64_t> ns = exchange.value().run(partner, kWithinBytes);
    if (!ns.is_ok()) return ns.status();
    if (i > 0) best = std::min(best, ns.value());
  }
  return gbit_per_s({kWithinBytes, best}, {0, 0});
}

// Collective over all ranks. The rate on this rank's host, on its first two ranks; 0 elsewhere.
Result<double> measure_within(bench::Rank& rank, const Members& members) {
  double mine = 0;
  for (size_t host = 0; host < members.firsts.size(); ++host) {
    const std::array<int32_t, 2> two = {members.firsts[host], members.seconds[host]};
    if (two[1] < 0) continue;
    const Result<bench::ProcessSet> set = rank.add_process_set(two);
    if (!set.is_ok()) return set.status();
    const auto me = std::ranges::find(two, rank.rank());
    if (me == two.end()) continue;
    const Result<double> rate = measure_two(rank, set.value(), me == two.begin() ? 1 : 0);
    if (!rate.is_ok()) return rate.status();
    mine = rate.value();
  }
  return mine;
}

// ---- between hosts ----

struct Team {  // the first ranks of all hosts
  bench::Rank& rank;
  const Members& members;
  bench::ProcessSet set;
  int me;
};

Status name_partner(const Team& team, int partner, const Status& status) {
  if (status.code != Code::kTimeout || partner < 0) return status;
  const auto& facts = team.members.facts;
  return {Code::kTimeout,
          fmt::format("{} waited {} s for an exchange with {}; look at the route between these two, and at "
                      "firewalls and MTUs",
                      facts[static_cast<size_t>(team.me)].host, kExchangeLimitS,
                      facts[static_cast<size_t>(partner)].host)};
}

// The time that 8 bytes add to a call that carries none, each the fastest of several, because other work on
// the hosts only ever adds. The sum of both ends is one round trip: each waits from its own start until the
// other's bytes have arrived.
Result<int64_t> time_small(const Team& team, PairExchange& exchange, int partner) {
  std::array<int64_t, 2> fastest = {INT64_MAX, INT64_MAX};
  for (int i = 0; i < kRoundTrips; ++i)
    for (const bool is_empty : {false, true}) {
      const Result<int64_t> ns = exchange.run(is_empty ? -1 : partner, kSmallBytes);
      if (!ns.is_ok()) return name_partner(team, partner, ns.status());
      int64_t& least = fastest.at(is_empty ? 1 : 0);
      least = std::min(least, ns.value());
    }
  return std::max<int64_t>(0, fastest[0] - fastest[1]);
}

// Collective in the team. What a stack has counted is read last: the exchanges of this round are in it.
Status find_round_trips(const Team& team, PairExchange& exchange, int partner,
                        std::vector<PairMeasurement>& pairs) {
  const Result<int64_t> small = time_small(team, exchange, partner);
  if (!small.is_ok()) return small.status();
  const int peer = partner < 0 ? -1 : team.members.firsts[static_cast<size_t>(partner)];
  const std::array<int64_t, 2> mine = {small.value(), peer < 0 ? 0 : team.rank.round_trip_ns(peer)};
  const Result<std::vector<int64_t>> all = team.rank.gather(mine, team.set);
  if (!all.is_ok()) return all.status();
  for (PairMeasurement& pair : pairs) {
    const auto a = 2 * static_cast<size_t>(pair.a), b = 2 * static_cast<size_t>(pair.b);
    const int64_t one = all.value()[a + 1], other = all.value()[b + 1];
    const int64_t counted = one > 0 && other > 0 ? std::min(one, other) : std::max(one, other);
    const RoundTrip trip = round_trip_of(static_cast<double>(counted) / 1e3,
                                         static_cast<double>(all.value()[a] + all.value()[b]) / 1e3);
    pair.round_trip_us = trip.us;
    pair.is_counted = trip.is_counted;
  }
  return Status::ok();
}

// Collective in the team. What both ways at once do not tell: whether one way is slower than the other. Each
// pair sends what it needed both ways last.
Status find_ways(const Team& team, PairExchange& exchange, int partner, std::vector<PairMeasurement>& pairs) {
  const auto mine = std::ranges::find_if(
      pairs, [&](const PairMeasurement& pair) { return pair.a == team.me || pair.b == team.me; });
  const int64_t bytes = mine == pairs.end() ? 0 : mine->bytes;
  std::array<int, 2> left = {kWayTimes, kWayTimes};  // the same on all ranks
  for (const bool is_forth : {true, false, true, false, true, false}) {
    if (left.at(is_forth ? 1 : 0)-- <= 0) continue;
    const bool sends = mine != pairs.end() && (is_forth ? mine->a : mine->b) == team.me;
    const Result<int64_t> ns = exchange.run(partner, sends ? bytes : 0, sends ? 0 : bytes);
    if (!ns.is_ok()) return name_partner(team, partner, ns.status());
    const Result<std::vector<int64_t>> all = team.rank.gather(std::span(&ns.value(), 1), team.set);
    if (!all.is_ok()) return all.status();
    for (PairMeasurement& pair : pairs) {
      const int64_t slower =
          std::max(all.value()[static_cast<size_t>(pair.a)], all.value()[static_cast<size_t>(pair.b)]);
      double& rate = is_forth ? pair.forth_gbit_per_s : pair.back_gbit_per_s;
      rate = std::max(rate, gbit_per_s({pair.bytes, slower}, {0, 0}));
    }
    if (std::ranges::max(all.value()) > kLongWayNs) left.at(is_forth ? 1 : 0) = 0;
  }
  return Status::ok();
}

// Collective in the team. The pairs of one round exchange at the same time.
Result<std::vector<PairMeasurement>> run_round(const Team& team, PairExchange& exchange, const Round& round) {
  const int partner = partner_in(round, team.me);
  std::vector<PairMeasurement> done(round.size());
  std::vector<Timed> before(round.size());
  for (size_t i = 0; i < round.size(); ++i) done[i] = {.a = round[i].first, .b = round[i].second};
  bool is_mine_open = partner >= 0;
  size_t open = round.size();
  for (int64_t bytes = kFirstBytes; open > 0; bytes *= kGrowth) {
    const int with = is_mine_open ? partner : -1;
    const Result<int64_t> ns = exchange.run(with, bytes);
    if (!ns.is_ok()) return name_partner(team, with, ns.status());
    const bool is_right =
        with < 0 || exchange.is_right(team.members.firsts[static_cast<size_t>(with)], bytes);
    const std::array<int64_t, 2> mine = {ns.value(), is_right ? 1 : 0};
    const Result<std::vector<int64_t>> all = team.rank.gather(mine, team.set);
    if (!all.is_ok()) return all.status();
    for (size_t i = 0; i < round.size(); ++i) {
      PairMeasurement& pair = done[i];
      if (pair.bytes != 0) continue;
      const auto a = 2 * static_cast<size_t>(pair.a), b = 2 * static_cast<size_t>(pair.b);
      const Timed now{bytes, std::max(all.value()[a], all.value()[b])};
      pair.is_right = pair.is_right && all.value()[a + 1] == 1 && all.value()[b + 1] == 1;
      const bool has_two = before[i].bytes != 0;
      if ((has_two && now.ns >= kLongEnoughNs) || now.ns >= kSlowAloneNs || bytes >= kLastBytes) {
        pair.gbit_per_s = gbit_per_s(now, before[i]);
        pair.bytes = bytes;
        --open;
        if (pair.a == team.me || pair.b == team.me) is_mine_open = false;
      }
      before[i] = now;
    }
  }
  if (Status status = find_ways(team, exchange, partner, done); !status.is_ok()) return status;
  if (Status status = find_round_trips(team, exchange, partner, done); !status.is_ok()) return status;
  return done;
}

Result<std::vector<ClockOffset>> compare_clocks(const Team& team) {
  std::vector<int64_t> stamps;
  for (int i = 0; i < kBarriers; ++i) {
    stamps.push_back(epoch_micros_now());
    if (Status met = team.rank.barrier("preflight.clock", team.set.id); !met.is_ok()) return met;
    stamps.push_back(epoch_micros_now());
  }
  const Result<std::vector<int64_t>> all = team.rank.gather(stamps, team.set);
  if (!all.is_ok()) return all.status();
  return clock_offsets(all.value(), team.set.size);
}

// What would blame somebody: links first.
std::vector<Pair> doubtful_pairs(int hosts, const std::vector<PairMeasurement>& pairs) {
  const LinkVerdict verdict = judge_links(hosts, pairs);
  std::vector<Pair> doubtful;
  const auto doubt = [&](int a, int b) {
    if (std::ranges::find(doubtful, Pair(a, b)) == doubtful.end()) doubtful.emplace_back(a, b);
  };
  for (const SlowLink& link : verdict.slow_links) doubt(link.a, link.b);
  for (const LongLink& link : verdict.long_links) doubt(link.a, link.b);
  const auto is_blamed = [&](int host) {
    return std::ranges::find(verdict.slow_hosts, host, &SlowHost::host) != verdict.slow_hosts.end() ||
           std::ranges::find(verdict.long_hosts, host, &LongHost::host) != verdict.long_hosts.end();
  };
  for (const PairMeasurement& pair : pairs)
    if (is_blamed(pair.a) || is_blamed(pair.b)) doubt(pair.a, pair.b);
  return doubtful;
}

// Links that look slow, and those of hosts that do, are measured again, so that a disturbance of one moment
// blames nobody. Where a slow host has more links than fit, one moment has not slowed them all.
Status repeat_slow(const Team& team, PairExchange& exchange, std::vector<PairMeasurement>& pairs) {
  for (const Round& round : pack(doubtful_pairs(team.set.size, pairs), kMostRepeats)) {
    const Result<std::vector<PairMeasurement>> again = run_round(team, exchange, round);
    if (!again.is_ok()) return again.status();
    for (const PairMeasurement& one : again.value())
      for (PairMeasurement& known : pairs)
        if (known.a == one.a && known.b == one.b) improve(known, one);
  }
  return Status::ok();
}

Status measure_between(const Team& team, int rounds, Measured& measured) {
  Result<PairExchange> exchange = PairExchange::make(team.rank, team.set);
  if (!exchange.is_ok()) return exchange.status();
  Result<std::vector<ClockOffset>> clocks = compare_clocks(team);
  if (!clocks.is_ok()) return clocks.status();
  measured.clocks = std::move(clocks).value();
  const std::vector<Round> all = tournament(team.set.size);
  measured.rounds_for_all = static_cast<int>(all.size());
  for (const Round& round : sample(all, rounds > 0 ? rounds : default_rounds(team.set.size))) {
    const Result<std::vector<PairMeasurement>> pairs = run_round(team, exchange.value(), round);
    if (!pairs.is_ok()) return pairs.status();
    measured.pairs.insert(measured.pairs.end(), pairs.value().begin(), pairs.value().end());
    ++measured.rounds;
  }
  for (int chance = 0; chance < kChances; ++chance)
    if (Status status = repeat_slow(team, exchange.value(), measured.pairs); !status.is_ok()) return status;
  return Status::ok();
}

// The rates inside the hosts, which their first ranks know.
Status gather_within(const Team& team, double mine, Measured& measured) {
  const auto bits = static_cast<int64_t>(mine * 1e9);
  const Result<std::vector<int64_t>> all = team.rank.gather(std::span(&bits, 1), team.set);
  if (!all.is_ok()) return all.status();
  for (const int64_t rate : all.value())
    measured.within_gbit_per_s.push_back(static_cast<double>(rate) / 1e9);
  return Status::ok();
}

}  // namespace

Result<Measured> measure(bench::Rank& rank, const std::string& own_path, int rounds) {
  Result<Members> met = meet(rank, own_path);
  if (!met.is_ok()) return met.status();
  const Members& members = met.value();
  if (members.firsts.empty())
    return Status(Code::kInternal, "no rank has local rank 0; see rueda env --explain");
  const Result<bench::ProcessSet> set = rank.add_process_set(members.firsts);
  if (!set.is_ok()) return set.status();
  const Result<double> within = measure_within(rank, members);
  if (!within.is_ok()) return within.status();
  Measured measured;
  const int me = members.host_of(rank.rank());
  if (me < 0) {
    rank.set_wait_limit(kWaitingLimitS);
  } else {
    const Team team{.rank = rank, .members = members, .set = set.value(), .me = me};
    measured.hosts = members.facts;
    if (Status status = gather_within(team, within.value(), measured); !status.is_ok()) return status;
    if (set.value().size > 1)
      if (Status status = measure_between(team, rounds, measured); !status.is_ok()) return status;
  }
  if (Status status = rank.barrier("preflight.end"); !status.is_ok()) return status;
  return measured;
}

}  // namespace rueda::preflight
