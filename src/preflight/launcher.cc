#include "preflight/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "preflight/captured_job.h"
#include "preflight/pairing.h"
#include "preflight/reachability.h"

namespace rueda::preflight {
namespace {

constexpr size_t kAtOnce = 64;              // hosts asked at the same time
constexpr Nanos kFactsTime = 40 * kSecond;  // Python may come from a slow file system
constexpr int kPairsOfHost = 4;             // tried where the job does not start
constexpr Nanos kRoundTime = 25 * kSecond;  // more than an exchange may take

launch::RunOptions job_with(const Request& request, std::vector<launch::HostSlots> hosts,
                            std::vector<std::string> command) {
  launch::RunOptions job = request.job;
  job.hosts = std::move(hosts);
  job.size = 0;
  for (const launch::HostSlots& host : job.hosts) job.size += host.slots;
  job.command = std::move(command);
  job.output.style.kind = launch::PrefixStyle::Kind::kNone;
  job.output.shown.reset();
  return job;
}

// As its ranks call the host: this machine has a name of its own.
std::string shown_name(const launch::HostSlots& host) {
  std::array<char, 256> name{};
  const bool is_here = host.name == "localhost" && gethostname(name.data(), name.size() - 1) == 0;
  return is_here ? name.data() : host.name;
}

// The hosts that get ranks, with as many slots as they get ranks.
std::vector<launch::HostSlots> used_hosts(const launch::RunOptions& job) {
  std::vector<launch::HostSlots> used = job.hosts;
  int left = job.size;
  for (launch::HostSlots& host : used) {
    host.slots = std::min(host.slots, left);
    left -= host.slots;
  }
  std::erase_if(used, [](const launch::HostSlots& host) { return host.slots == 0; });
  return used;
}

struct Answers {
  std::vector<launch::HostSlots> hosts;  // that have answered
  std::vector<HostFacts> facts;
  Findings findings;
};

void add_answer(Answers& answers, const launch::HostSlots& host, const CapturedJob& job, bool is_in_time) {
  Result<HostFacts> facts = decode_facts(marked_line(job.out(), kFactsMark));
  if (facts.is_ok()) {
    facts.value().host = shown_name(host);
    answers.hosts.push_back(host);
    answers.facts.push_back(std::move(facts).value());
    return;
  }
  std::string why = reason_of(job.err());
  if (why.empty()) why = is_in_time ? "it said nothing" : "it did not end in time";
  answers.findings.push_back(
      {"missing-host", {host.name}, fmt::format("{}: does not answer: {}", host.name, why)});
}

// Every host through the launcher, each in a job of its own, so that one that fails does not hide the others.
Answers ask_hosts(const Request& request, const std::vector<launch::HostSlots>& hosts,
                  const std::string& own_path) {
  Answers answers;
  const auto limit = nanos(request.job.start_timeout_s, kSecond) + kFactsTime;
  for (size_t begin = 0; begin < hosts.size(); begin += kAtOnce) {
    const size_t end = std::min(hosts.size(), begin + kAtOnce);
    std::vector<CapturedJob> jobs;
    for (size_t i = begin; i < end; ++i)
      jobs.emplace_back(job_with(request, {{hosts[i].name, 1}}, {own_path, "preflight", "--facts"}));
    const Deadline deadline = Deadline::after(limit);
    for (size_t i = begin; i < end; ++i) {
      const bool is_in_time = jobs[i - begin].read_all(deadline);
      add_answer(answers, hosts[i], jobs[i - begin], is_in_time);
    }
  }
  return answers;
}

// What one job of the ranks has come to.
struct Attempt {
  std::optional<Measured> measured;
  std::string why;                 // there is nothing measured
  std::vector<std::string> named;  // hosts, in that sentence
};

// A job of ranks that measure.
class MeasuringJob {
 public:
  MeasuringJob(const Request& request, std::vector<launch::HostSlots> hosts, const std::string& own_path,
               int rounds)
      : limit_(nanos(request.job.start_timeout_s, kSecond) + kFactsTime + kRoundTime * (rounds + 8)),
        job_(
            job_with(request, hosts,
                     {own_path, "preflight", "--measure", "--rounds", std::to_string(std::max(1, rounds))})) {
    for (const launch::HostSlots& host : hosts)
      host_of_rank_.insert(host_of_rank_.end(), static_cast<size_t>(host.slots), host.name);
  }

  Attempt finish() {
    const bool is_in_time = job_.read_all(Deadline::after(limit_));
    const std::string line = marked_line(job_.out(), kMeasuredMark);
    if (!line.empty()) {
      Result<Measured> measured = decode_measured(line);
      return measured.is_ok() ? Attempt{.measured = std::move(measured).value(), .why = {}, .named = {}}
                              : failed(measured.status().why);
    }
    if (!is_in_time) return failed(fmt::format("it did not end within {} s", limit_ / kSecond));
    const std::string said = marked_line(job_.out(), kFailedMark);
    return failed(said.empty() ? reason_of(job_.err()) : said);
  }

 private:
  [[nodiscard]] Attempt failed(const std::string& why) const {
    Attempt attempt;
    attempt.why = with_hosts(why, host_of_rank_, attempt.named);
    return attempt;
  }

  Nanos limit_;
  CapturedJob job_;
  std::vector<std::string> host_of_rank_;
};

Attempt measure_on(const Request& request, const std::vector<launch::HostSlots>& hosts,
                   const std::string& own_path) {
  const int rounds = request.rounds > 0 ? request.rounds : default_rounds(static_cast<int>(hosts.size()));
  return MeasuringJob(request, hosts, own_path, rounds).finish();
}

// Pairs of hosts, each in a job of its own, many at the same time, and why those failed that did.
struct TriedPairs {
  std::vector<TriedPair> pairs;
  std::vector<std::string> reasons;  // for each pair; empty: it connected
};

TriedPairs try_pairs(const Request& request, const std::vector<launch::HostSlots>& hosts,
                     const std::string& own_path) {
  TriedPairs tried;
  for (const Round& round : sample(tournament(static_cast<int>(hosts.size())), kPairsOfHost))
    for (const auto& [a, b] : round) tried.pairs.push_back({.a = a, .b = b});
  const auto one_of = [&](int host) { return launch::HostSlots{hosts[static_cast<size_t>(host)].name, 1}; };
  for (size_t begin = 0; begin < tried.pairs.size(); begin += kAtOnce) {
    const size_t end = std::min(tried.pairs.size(), begin + kAtOnce);
    std::vector<MeasuringJob> jobs;
    jobs.reserve(end - begin);
    for (size_t i = begin; i < end; ++i) {
      const TriedPair& pair = tried.pairs[i];
      jobs.emplace_back(request, std::vector{one_of(pair.a), one_of(pair.b)}, own_path, 1);
    }
    for (size_t i = begin; i < end; ++i) {
      const Attempt attempt = jobs[i - begin].finish();
      tried.pairs[i].is_connected = attempt.measured.has_value();
      tried.reasons.push_back(attempt.why);
    }
  }
  return tried;
}

// Says which hosts and links keep the job from starting.
void blame(const std::vector<launch::HostSlots>& hosts, const TriedPairs& tried,
           const Reachability& reachability, Findings& findings) {
  const auto name = [&](int host) { return hosts[static_cast<size_t>(host)].name; };
  const auto why_of = [&](const auto& is_meant) {
    for (size_t i = 0; i < tried.pairs.size(); ++i)
      if (!tried.pairs[i].is_connected && is_meant(tried.pairs[i])) return tried.reasons[i];
    return std::string();
  };
  for (const int host : reachability.cut)
    findings.push_back(
        {"no-job",
         {name(host)},
         fmt::format(
             "{}: the launcher reaches it, but with no other host its ranks become a job, so the others "
             "were measured without it; look at its network interface (RUEDA_INTERFACE names another), "
             "routes and firewall: {}",
             name(host), why_of([&](const TriedPair& one) { return one.a == host || one.b == host; }))});
  for (const auto& [a, b] : reachability.broken)
    findings.push_back(
        {"no-job",
         {name(a), name(b)},
         fmt::format(
             "{} - {}: their ranks do not become a job with one another, but do with other hosts; look at "
             "the route and the firewalls between them: {}",
             name(a), name(b), why_of([&](const TriedPair& one) { return one.a == a && one.b == b; }))});
}

// Where the job did not come to its end: that of the hosts that can connect, if pairs show which these are.
std::optional<Measured> measure_others(const Request& request, Answers& answers,
                                       const std::string& own_path) {
  if (answers.hosts.size() < 3) return std::nullopt;  // of two, either may be at fault
  const TriedPairs tried = try_pairs(request, answers.hosts, own_path);
  const Reachability reachability = judge_reachability(static_cast<int>(answers.hosts.size()), tried.pairs);
  std::vector<launch::HostSlots> rest;
  for (size_t i = 0; i < answers.hosts.size(); ++i)
    if (!std::ranges::binary_search(reachability.left_out, static_cast<int>(i)))
      rest.push_back(answers.hosts[i]);
  if (reachability.left_out.empty() || rest.size() < 2) return std::nullopt;
  Attempt attempt = measure_on(request, rest, own_path);
  if (!attempt.measured) return std::nullopt;
  blame(answers.hosts, tried, reachability, answers.findings);
  // What is known of those that took no part comes behind what was measured.
  for (const int host : reachability.left_out)
    attempt.measured->hosts.push_back(answers.facts[static_cast<size_t>(host)]);
  return std::move(attempt.measured);
}

// The job itself on the hosts that answered. Without an answer, the facts alone are what is known.
Measured measure_job(const Request& request, Answers& answers, const std::string& own_path) {
  Attempt attempt = measure_on(request, answers.hosts, own_path);
  if (attempt.measured) return *std::move(attempt.measured);
  if (std::optional<Measured> others = measure_others(request, answers, own_path)) return *std::move(others);
  answers.findings.push_back(
      {"no-job", attempt.named,
       fmt::format("the job did not come to its end, so nothing was measured: {}", attempt.why)});
  Measured facts_alone;
  facts_alone.hosts = answers.facts;
  return facts_alone;
}

// Of the hosts that were measured; empty if one of them is none of the job's by its name.
std::vector<launch::HostSlots> slots_of(const Measured& measured,
                                        const std::vector<launch::HostSlots>& hosts) {
  std::vector<launch::HostSlots> slots;
  for (const HostFacts& facts : measured.hosts)
    if (const auto at = std::ranges::find(hosts, facts.host, shown_name); at != hosts.end())
      slots.push_back(*at);
  return slots.size() == measured.hosts.size() ? slots : std::vector<launch::HostSlots>();
}

}  // namespace

std::string marked_line(const std::string& text, const std::string& mark) {
  std::string found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (text.compare(begin, mark.size(), mark) == 0)
      found = text.substr(begin + mark.size(), end - begin - mark.size());
    begin = end + 1;
  }
  return found;
}

std::string reason_of(const std::string& news) {
  constexpr std::string_view kPrefix = "rueda: ";
  std::string text;
  for (size_t begin = 0; begin < news.size();) {
    const size_t end = std::min(news.find('\n', begin), news.size());
    std::string_view line = std::string_view(news).substr(begin, end - begin);
    if (line.starts_with(kPrefix)) line.remove_prefix(kPrefix.size());
    if (!line.empty()) text += (text.empty() ? "" : "; ") + std::string(line);
    begin = end + 1;
  }
  constexpr size_t kMost = 600;  // the cause comes first
  return text.size() > kMost ? text.substr(0, kMost) + " ..." : text;
}

std::string with_hosts(const std::string& sentence, const std::vector<std::string>& hosts,
                       std::vector<std::string>& named) {
  constexpr std::string_view kRank = "rank ";
  std::string text;
  size_t begin = 0;
  for (size_t at = sentence.find(kRank); at != std::string::npos; at = sentence.find(kRank, begin)) {
    size_t end = at + kRank.size(), rank = 0;
    const auto [stop, error] =
        std::from_chars(sentence.data() + end, sentence.data() + sentence.size(), rank);
    if (error == std::errc()) end = static_cast<size_t>(stop - sentence.data());
    text += sentence.substr(begin, end - begin);
    begin = end;
    if (error != std::errc() || rank >= hosts.size()) continue;
    text += fmt::format(" (on {})", hosts[rank]);
    if (std::ranges::find(named, hosts[rank]) == named.end()) named.push_back(hosts[rank]);
  }
  return text + sentence.substr(begin);
}

Outcome launch_and_judge(const Request& request, const std::string& own_path) {
  const std::vector<launch::HostSlots> hosts = used_hosts(request.job);
  Answers answers = ask_hosts(request, hosts, own_path);
  Measured measured;
  if (!answers.hosts.empty()) measured = measure_job(request, answers, own_path);
  std::vector<launch::HostSlots> slots = slots_of(measured, hosts);
  Outcome outcome = judge(std::move(measured), request.job.size, request.least_gbit_per_s, answers.findings,
                          std::move(slots));
  outcome.asked.clear();
  for (const launch::HostSlots& host : hosts) outcome.asked.push_back(shown_name(host));
  return outcome;
}

}  // namespace rueda::preflight
