#include "launch/elastic_hands.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/store_register.h"
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
// job. Hosts keep their numbers, so a new one is the last.
bool ElasticHands::reach(const std::string& host) {
  std::vector<HostLink>& links = parts_.agents.links();
  const auto link = std::ranges::find(links, host, &HostLink::host);
  if (link == links.end()) {
    parts_.ranks.add_host(host);
    if (const Status started = parts_.agents.start(host, parts_.options); !started.is_ok()) say(started.why);
    return false;
  }
  if (!link->hello() || link->is_lost()) return false;
  if (link->has_job()) return true;
  if (link->hello()->release != kRelease || link->hello()->protocol != kProtocol) {
    link->close(fmt::format("it runs release {} of rueda, but this is {}", link->hello()->release, kRelease));
    return false;
  }
  const Result<Bytes> job = job_message(parts_.options, *parts_.start, parts_.ranks.placements(), *link,
                                        static_cast<int>(link - links.begin()));
  if (job.is_ok()) link->send(MessageType::kJob, job.value());
  link->note_job();
  return job.is_ok();
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
