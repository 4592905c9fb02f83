#include "launch/elastic_hands.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/elastic_words.h"
#include "launch/store_register.h"
#include "rueda/base/counted.h"
#include "rueda/base/release.h"

namespace rueda::launch {

ElasticHands::ElasticHands(const JobParts& parts)
    : parts_(parts), job_(parts.options.elastic, parts.options.size, effects()) {
  job_.begin(parts.options.hosts, parts.ranks.placements(), monotonic_now());
}

ElasticJob::Effects ElasticHands::effects() {
  return {.start = [this](const std::string& host, const Variables& own) { start(host, own); },
          .end =
              [this](int number) {
                ByteWriter message;
                message.put(static_cast<int32_t>(number));
                send(number, MessageType::kEndRank, message.bytes());
              },
          .change =
              [this](int number, const status::ViewChange& change) {
                send(number, MessageType::kViewChange, encode(ViewChangeFor{number, change}));
              },
          .put = [this](const std::string& key, const std::string& value) { parts_.store->put(key, value); },
          .say = [this](const std::string& sentence) { say(sentence); },
          .reach = [this](const std::string& host) { return reach(host); }};
}

Status ElasticHands::open(JobStart& start) {
  for (Rank rank = 0; rank < parts_.ranks.size(); ++rank) start.own.push_back(job_.variables_of(rank));
  return job_.open(std::make_unique<StoreRegister>(std::move(start.client)), monotonic_now());
}

void ElasticHands::send(int number, MessageType type, std::span<const std::byte> payload) {
  for (HostLink& link : parts_.agents.links())
    if (link.host() == parts_.ranks.host_of(number)) link.send(type, payload);
}

// The view gives it its rank. Until then it finds its number in the place of one.
void ElasticHands::start(const std::string& host, const Variables& variables) {
  const Rank number = parts_.ranks.add(host);
  if (const Status opened = parts_.output.add_rank(); !opened.is_ok()) say(opened.why);
  parts_.output.name_host(number, host);
  RankJob job{.rank = number,
              .env = rank_variables({.rank = number}, number + 1, host, parts_.start->rendezvous)};
  job.env.insert(job.env.end(), variables.begin(), variables.end());
  send(number, MessageType::kStartRank, encode(job));
}

// Whether processes can start on this host. The first question starts its agent, and its hello brings it the
// job. An agent that has ended is started again, now and then.
bool ElasticHands::reach(const std::string& host) {
  std::vector<HostLink>& links = parts_.agents.links();
  const auto link = std::ranges::find(links, host, &HostLink::host);
  if (link == links.end()) {
    begin_agent(host, nullptr);
    return false;
  }
  if (link->is_over()) {
    const Nanos now = monotonic_now();
    if (link->has_joined()) return false;  // it may call again
    if (link->was_dismissed()) begin_agent(host, &*link);
    if (!link->is_over()) return false;
    const std::string why = link->has_said_bye() ? "its agent has ended" : link->lost_because();
    if (!tries_.rests(host) && tries_.on_lost(host, why, now)) say(describe_absence(host, why));
    if (tries_.begins(host, now)) begin_agent(host, &*link);
    return false;
  }
  if (!link->hello() || !link->is_open()) return false;
  return link->has_job() || give_job(*link);
}

// before: the link to its agent that has ended. Hosts keep their numbers, so a new one is the last.
void ElasticHands::begin_agent(const std::string& host, HostLink* before) {
  if (before == nullptr) parts_.ranks.add_host(host);
  const Status started = before == nullptr ? parts_.agents.start(host, parts_.options)
                                           : parts_.agents.start_again(*before, parts_.options);
  if (!started.is_ok()) say(started.why);
}

// Without ranks: they follow one by one.
bool ElasticHands::give_job(HostLink& link) {
  const Hello& hello = *link.hello();
  if (hello.release != kRelease || hello.protocol != kProtocol) {
    link.close(fmt::format("it runs release {} of rueda (agent protocol {}), but this is {} ({})",
                           hello.release, hello.protocol, kRelease, kProtocol));
    return false;
  }
  const Result<Bytes> job = job_message(parts_.options, *parts_.start, {}, link, -1);
  if (job.is_ok()) link.send(MessageType::kJob, job.value());
  link.note_job();
  tries_.on_success(link.host());
  return job.is_ok();
}

// Agents whose hosts are to go have nothing to do once their processes have ended.
void ElasticHands::dismiss_left() {
  ByteWriter grace;
  grace.put(nanos(parts_.options.grace_s, kSecond) / kMillisecond);
  for (HostLink& link : parts_.agents.links())
    if (link.has_job() && !link.was_dismissed() && job_.has_left(link.host())) {
      link.note_dismissal();
      link.send(MessageType::kStop, grace.bytes());
    }
}

// An agent that has called by itself. One of the same name may have gone before.
void ElasticHands::welcome(HostLink link, Nanos now) {
  std::vector<HostLink>& links = parts_.agents.links();
  const std::string host = link.host();
  const int slots = std::max(1, link.hello()->slots);
  const auto before = std::ranges::find(links, host, &HostLink::host);
  if (before != links.end() && !before->is_over())
    return parts_.door->turn_away(
        std::move(link),
        fmt::format(
            "host {} has an agent in this job already; name another one by --name, or give that agent "
            "more --slots",
            host),
        now);
  if (before != links.end()) {
    *before = std::move(link);
  } else {
    parts_.ranks.add_host(host);
    parts_.agents.adopt(std::move(link));
  }
  job_.on_joined(host, slots);
  say(fmt::format("host {} joins with {}", host, counted(slots, "slot")));
}

void ElasticHands::tick(Nanos now) {
  if (parts_.door) {
    parts_.door->tick(now);
    for (HostLink& link : parts_.door->take()) welcome(std::move(link), now);
  }
  for (const HostLink& link : parts_.agents.links())
    if (link.is_remote()) job_.on_silent(link.host(), link.has_job() && link.is_silent(now));
  job_.tick(now);
  dismiss_left();
}

std::vector<Rank> ElasticHands::members_of(const std::vector<Rank>& numbers) const {
  std::vector<Rank> ranks;
  for (const Rank number : numbers)
    if (const Rank rank = job_.rank_of(number); rank != -1) ranks.push_back(rank);
  return ranks;
}

Status ElasticHands::on_message(const AgentMessage& message) {
  return message.type == MessageType::kBoard ? on_board(message.payload) : on_leave(message.payload);
}

Status ElasticHands::on_leave(std::span<const std::byte> payload) {
  const auto number = ByteReader(payload).get<int32_t>();
  if (number < 0 || number >= parts_.ranks.size())
    return {Code::kInternal, fmt::format("it named process {}, which does not exist", number)};
  job_.on_leaving(number);
  return Status::ok();
}

bool ElasticHands::on_host_leaving(const HostLink& link) {
  const bool is_news = !job_.is_leaving(link.host());
  if (!job_.on_host_leaving(link.host())) return false;
  if (is_news)
    say(fmt::format("SIGTERM came to the agent of {}; its processes leave at the next commit", link.host()));
  return true;
}

Status ElasticHands::on_board(std::span<const std::byte> payload) {
  const Result<BoardReport> report = decode_board_report(payload);
  if (report.is_ok()) job_.on_board(report.value());
  return report.is_ok() ? Status::ok() : report.status();
}

void ElasticHands::on_held(const std::string& host, std::span<const std::byte> payload) {
  const Result<status::JobNews> news = status::decode_job_news(payload);
  if (news.is_ok()) job_.on_held(host, news.value(), monotonic_now());
}

void ElasticHands::on_host_lost(const std::string& host, Nanos now) {
  job_.on_host_lost(host);
  for (const Ending& ending : parts_.ranks.endings())
    if (ending.host == host) job_.on_ended(ending, now);
}

}  // namespace rueda::launch
