#include "bench/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "bench/sizes.h"
#include "rueda/base/numbers.h"

namespace rueda::bench {
namespace {

constexpr double kMostLate = 10;  // times the computing of a step, beside it: what is more is a mistake

Status bad_fault(std::string_view text, std::string_view form) {
  return {Code::kInvalidArgument, fmt::format("{} is not {}", text, form)};
}

std::optional<int> index_in(std::string_view text) {
  const std::optional<int> index = number_of<int>(text);
  return index && *index >= 0 ? index : std::nullopt;
}

// Reads each entry of a list, of the form KEY:VALUE.
template <class Fault, class Read>
Result<std::vector<Fault>> faults_in(std::string_view text, std::string_view form, Read&& read) {
  const Result<std::vector<std::string>> words = parse_words(text);
  if (!words.is_ok()) return words.status();
  std::vector<Fault> faults;
  for (const std::string& word : words.value()) {
    const std::string_view all = word;
    const size_t colon = all.find(':');
    if (colon == std::string_view::npos) return bad_fault(word, form);
    Result<std::optional<Fault>> fault = read(all.substr(0, colon), all.substr(colon + 1));
    if (!fault.is_ok()) return fault.status();
    if (!fault.value()) return bad_fault(word, form);
    faults.push_back(*fault.value());
  }
  return faults;
}

// may_be_share: 0.2 is the same as 20%. For people 20 would then be 2,000 %.
Result<std::vector<LateRank>> late_ranks_in(std::string_view text, bool may_be_share) {
  using Read = Result<std::optional<LateRank>>;
  return faults_in<LateRank>(text,
                             "a late rank; write its number and by how many percent longer it computes, "
                             "from 0% to 1000%, as in 1:20%",
                             [may_be_share](std::string_view key, std::string_view value) -> Read {
                               const std::optional<int> rank = index_in(key);
                               const bool is_percent = value.ends_with('%');
                               if (is_percent) value.remove_suffix(1);
                               const std::optional<double> share = number_of<double>(value);
                               if (!rank || !share || !(is_percent || may_be_share))
                                 return std::optional<LateRank>();
                               const double times = *share / (is_percent ? 100 : 1);
                               if (!(times >= 0 && times <= kMostLate))
                                 return std::optional<LateRank>();  // nor is it no number
                               return std::optional(LateRank{.rank = *rank, .share = times});
                             });
}

std::string slower_than(std::string_view what, int64_t rate, int64_t port) {
  return fmt::format("--slow-pair {} of {} limits nothing: a port of these hosts has {}; give a lower rate",
                     what, rate_text(rate), rate_text(port));
}

}  // namespace

int64_t Faults::port_rate(int host, int64_t others) const {
  const auto slow = std::ranges::find(hosts, host, &SlowHost::host);
  return slow == hosts.end() ? others : slow->rate;
}

double Faults::slowness(int rank) const {
  const auto one = std::ranges::find(late, rank, &LateRank::rank);
  return one == late.end() ? 1 : 1 + one->share;
}

Status Faults::check(int ranks, int per_host, int64_t rate) const {
  const int count = (ranks + per_host - 1) / per_host;
  const auto refuse_number = [](std::string_view flag, std::string_view what, int given, int most) -> Status {
    return {Code::kInvalidArgument, fmt::format("{} names {} {}; with so many ranks there are {} 0 to {}",
                                                flag, what, given, what == "host" ? "hosts" : "ranks", most)};
  };
  const auto refuse_twice = [](std::string_view flag, const std::string& what) -> Status {
    return {Code::kInvalidArgument, fmt::format("{} names {} twice; name each once", flag, what)};
  };
  std::set<int> seen;
  for (const SlowHost& one : hosts) {
    if (one.host >= count) return refuse_number("--slow-host", "host", one.host, count - 1);
    if (!seen.insert(one.host).second) return refuse_twice("--slow-host", fmt::format("host {}", one.host));
  }
  std::set<std::pair<int, int>> seen_pairs;
  for (const SlowPair& one : pairs) {
    const std::string name = fmt::format("{}-{}", one.first, one.second);
    if (std::max(one.first, one.second) >= count)
      return refuse_number("--slow-pair", "host", std::max(one.first, one.second), count - 1);
    if (!seen_pairs.insert(std::minmax(one.first, one.second)).second)
      return refuse_twice("--slow-pair", fmt::format("the hosts {}", name));
    const int64_t port = std::min(port_rate(one.first, rate), port_rate(one.second, rate));
    if (one.rate >= port) return {Code::kInvalidArgument, slower_than(name, one.rate, port)};
  }
  seen.clear();
  for (const LateRank& one : late) {
    if (one.rank >= ranks) return refuse_number("--late", "rank", one.rank, ranks - 1);
    if (!seen.insert(one.rank).second) return refuse_twice("--late", fmt::format("rank {}", one.rank));
  }
  return Status::ok();
}

std::vector<std::string> Faults::words() const {
  std::vector<std::string> all;
  const auto add = [&](const char* flag, const std::vector<std::string>& entries) {
    if (!entries.empty()) all.insert(all.end(), {flag, fmt::format("{}", fmt::join(entries, ","))});
  };
  std::vector<std::string> of_hosts, of_pairs, of_ranks;
  for (const SlowHost& one : hosts) of_hosts.push_back(fmt::format("{}:{}bit", one.host, one.rate));
  for (const SlowPair& one : pairs)
    of_pairs.push_back(fmt::format("{}-{}:{}bit", one.first, one.second, one.rate));
  for (const LateRank& one : late) of_ranks.push_back(fmt::format("{}:{:.12g}%", one.rank, 100 * one.share));
  add("--slow-host", of_hosts);
  add("--slow-pair", of_pairs);
  add("--late", of_ranks);
  return all;
}

std::string Faults::text() const {
  std::vector<std::string> all;
  for (const SlowHost& one : hosts)
    all.push_back(fmt::format("host {} has {}", one.host, rate_text(one.rate)));
  for (const SlowPair& one : pairs)
    all.push_back(fmt::format("hosts {}-{} have {}", one.first, one.second, rate_text(one.rate)));
  for (const LateRank& one : late)
    all.push_back(fmt::format("rank {} late by {:g} %", one.rank, 100 * one.share));
  return fmt::format("{}", fmt::join(all, ", "));
}

Result<Faults> faults_of(const std::vector<std::string>& words) {
  Faults faults;
  const auto take = [](auto found, auto& target) {
    if (found.is_ok()) target = std::move(found).value();
    return found.status();
  };
  Status status;
  for (size_t i = 0; i < words.size() && status.is_ok(); i += 2) {
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "--slow-host")
      status = take(parse_slow_hosts(value), faults.hosts);
    else if (words[i] == "--slow-pair")
      status = take(parse_slow_pairs(value), faults.pairs);
    else if (words[i] == "--late")
      status = take(late_ranks_in(value, /*may_be_share=*/true), faults.late);
    else
      status = bad_fault(words[i], "a fault; there are --slow-host, --slow-pair and --late");
  }
  if (!status.is_ok()) return status;
  return faults;
}

Result<std::vector<SlowHost>> parse_slow_hosts(std::string_view text) {
  using Read = Result<std::optional<SlowHost>>;
  return faults_in<SlowHost>(text, "a slow host; write its number and the rate of its port, as in 2:250mbit",
                             [](std::string_view key, std::string_view value) -> Read {
                               const std::optional<int> host = index_in(key);
                               if (!host) return std::optional<SlowHost>();
                               const Result<int64_t> rate = parse_link_rate(value);
                               if (!rate.is_ok()) return rate.status();
                               return std::optional(SlowHost{.host = *host, .rate = rate.value()});
                             });
}

Result<std::vector<SlowPair>> parse_slow_pairs(std::string_view text) {
  using Read = Result<std::optional<SlowPair>>;
  return faults_in<SlowPair>(
      text, "a slow pair; write the numbers of two hosts and the rate between them, as in 0-3:100mbit",
      [](std::string_view key, std::string_view value) -> Read {
        const size_t dash = key.find('-');
        if (dash == std::string_view::npos) return std::optional<SlowPair>();
        const std::optional<int> first = index_in(key.substr(0, dash)),
                                 second = index_in(key.substr(dash + 1));
        if (!first || !second || *first == *second) return std::optional<SlowPair>();
        const Result<int64_t> rate = parse_link_rate(value);
        if (!rate.is_ok()) return rate.status();
        return std::optional(SlowPair{.first = *first, .second = *second, .rate = rate.value()});
      });
}

Result<std::vector<LateRank>> parse_late_ranks(std::string_view text) {
  return late_ranks_in(text, /*may_be_share=*/false);
}

}  // namespace rueda::bench
