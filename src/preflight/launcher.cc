#include "preflight/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "preflight/captured_job.h"
#include "preflight/pairing.h"

namespace rueda::preflight {
namespace {

constexpr size_t kAtOnce = 64;              // hosts asked at the same time
constexpr Nanos kFactsTime = 40 * kSecond;  // Python may come from a slow file system
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

// The job itself on the hosts that answered. Without an answer, the facts alone are what is known.
Measured measure_job(const Request& request, Answers& answers, const std::string& own_path) {
  Measured facts_alone;
  facts_alone.hosts = answers.facts;
  std::vector<std::string> host_of_rank;
  for (const launch::HostSlots& host : answers.hosts)
    host_of_rank.insert(host_of_rank.end(), static_cast<size_t>(host.slots), host.name);
  const auto fail = [&](const std::string& why) {
    std::vector<std::string> named;
    const std::string sentence = with_hosts(why, host_of_rank, named);
    answers.findings.push_back(
        {"no-job", named,
         fmt::format("the job did not come to its end, so nothing was measured: {}", sentence)});
    return facts_alone;
  };
  const auto count = static_cast<int>(answers.hosts.size());
  const int rounds = request.rounds > 0 ? request.rounds : default_rounds(count);
  CapturedJob job(
      job_with(request, answers.hosts,
               {own_path, "preflight", "--measure", "--rounds", std::to_string(std::max(1, rounds))}));
  const Nanos limit = nanos(request.job.start_timeout_s, kSecond) + kFactsTime + kRoundTime * (rounds + 8);
  const bool is_in_time = job.read_all(Deadline::after(limit));
  const std::string line = marked_line(job.out(), kMeasuredMark);
  if (!line.empty()) {
    Result<Measured> measured = decode_measured(line);
    return measured.is_ok() ? std::move(measured).value() : fail(measured.status().why);
  }
  if (!is_in_time) return fail(fmt::format("it did not end within {} s", limit / kSecond));
  const std::string said = marked_line(job.out(), kFailedMark);
  return fail(said.empty() ? reason_of(job.err()) : said);
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
  Outcome outcome = judge(std::move(measured), request.job.size, request.least_gbit_per_s, answers.findings);
  outcome.asked.clear();
  for (const launch::HostSlots& host : hosts) outcome.asked.push_back(shown_name(host));
  return outcome;
}

}  // namespace rueda::preflight
