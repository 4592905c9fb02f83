#include "timeline/shares_json.h"
#include "timeline/summary.h"

namespace rueda::timeline {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of_lateness(Lateness why) {
  switch (why) {
    case Lateness::kNone:
      return "none";
    case Lateness::kCompute:
      return "compute";
    case Lateness::kInput:
      return "input";
    case Lateness::kTransfer:
      return "transfer";
    case Lateness::kRarely:
      return "rarely";
    case Lateness::kInputAtTimes:
      return "input at times";
    case Lateness::kComputeAtTimes:
      return "compute at times";
    case Lateness::kUnknown:
      return "unknown";
  }
  return {};
}

Json waits_json(const std::vector<LongWait>& waits) {
  Json json = Json::array();
  for (const LongWait& one : waits) json.push_back({{"step", one.step}, {"ns", one.time}});
  return json;
}

// null: late in no such steps.
Json late_json(const LateSteps& late) {
  if (late.count == 0) return {};
  return {{late.are_calls ? "calls" : "steps", late.count},
          {"of", late.of},
          {"every", late.every},
          {"first", late.first},
          {"longer_ns", late.longer}};
}

Json waiting_json(const StepSummary& step) {
  Json json = Json::array();
  for (const auto& [rank, time] : step.waiting_for) json.push_back({{"rank", rank}, {"ns", time}});
  return json;
}

Json transfer_json(const StepSummary& step) {
  Json json = Json::array();
  for (const auto& [link, time] : step.transfer_on)
    json.push_back({{"from", link.first}, {"to", link.second}, {"ns", time}});
  return json;
}

void add_links(const Summary& s, Json& json) {
  Json& by_link = json["by_link"] = Json::array();
  for (const LinkTransfer& link : s.by_link)
    by_link.push_back({{"from", link.from},
                       {"to", link.to},
                       {"blocked_ns", link.blocked},
                       {"bytes", link.bytes},
                       {"gbps", link.gbps},
                       {"measured_gbps", link.measured_gbps}});
  json["off_links_ns"] = s.off_links;
  Json& links = json["links"] = Json::array();
  for (const LinkSummary& link : s.links)
    links.push_back({{"rank", link.rank},
                     {"out_gbps", link.out_gbps},
                     {"in_gbps", link.in_gbps},
                     {"is_slow", link.is_slow_out || link.is_slow_in}});
  Json& pairs = json["slow_pairs"] = Json::array();
  for (const SlowLink& pair : s.slow_pairs)
    pairs.push_back({{"ranks", {pair.end, pair.other}},
                     {"is_both_ways", pair.sends && pair.receives},
                     {"gbps", pair.speed},
                     {"usual_gbps", pair.usual}});
  Json& times = json["slow_times"] = Json::array();
  for (const SlowTime& time : s.slow_times) {
    Json ranks = Json::array({time.link.end});
    if (time.link.other >= 0) ranks.push_back(time.link.other);
    times.push_back({{"ranks", ranks},
                     {"from_s", time.from / 1e9},
                     {"until_s", time.until / 1e9},
                     {"gbps", time.link.speed},
                     {"usual_gbps", time.link.usual}});
  }
}

// null: no part of the job.
Json range_json(const StepRange& range) {
  return range.count() == 0 ? Json() : Json::array({range.first, range.last});
}

}  // namespace

Json shares_json(const Shares& shares) {
  Json json = Json::object();
  for (size_t i = 0; i < kShares; ++i)
    json[std::string(name_of(static_cast<StepShare>(i))) + "_ns"] = shares[i];
  return json;
}

namespace {

Json totals_json(const Summary& s) {
  return {{"job", s.job},
          {"command", s.command},
          {"began_s", static_cast<double>(s.began_micros) / 1e6},
          {"epoch", s.epoch},
          {"ranks", s.size},
          {"files", s.files},
          {"steps", s.steps},
          {"has_steps", s.has_steps},
          {"knows_waits", s.knows_waits},
          {"step_ns", s.step_length},
          {"step_p50_ns", s.step_p50},
          {"step_p95_ns", s.step_p95},
          {"shares", shares_json(s.shares)},
          {"critical_path", shares_json(s.critical)},
          {"unattributed", s.unattributed},
          {"overlap", s.overlap},
          {"clock_bound_ns", s.clock_bound},
          {"calls", s.calls},
          {"planned_calls", s.planned_calls},
          {"bytes", s.bytes},
          {"bus_gbps", s.bus_gbps},
          {"plans", s.plans},
          {"departures", s.departures},
          {"all_compute_longer", late_json(s.all_longer)},
          {"remarks", s.remarks}};
}

}  // namespace

std::string as_json(const Summary& s) {
  Json json = totals_json(s);
  Json& by_step = json["by_step"] = Json::array();
  for (const StepSummary& step : s.by_step)
    by_step.push_back({{"step", step.first},
                       {"count", step.count},
                       {"length_ns", step.length},
                       {"shares", shares_json(step.shares)},
                       {"waiting_for", waiting_json(step)},
                       {"transfer_on", transfer_json(step)}});
  Json& by_rank = json["by_rank"] = Json::array();
  for (const RankSummary& rank : s.by_rank)
    by_rank.push_back({{"rank", rank.rank},
                       {"host", rank.host},
                       {"cost_ns", rank.cost},
                       {"last", rank.last},
                       {"critical_steps", rank.critical},
                       {"longest_waits", waits_json(rank.worst)},
                       {"delay_ns", rank.delay},
                       {"why", name_of_lateness(rank.why)},
                       {"late_at_times", late_json(rank.at_times)},
                       {"late_in_steps", range_json(rank.late_in)},
                       {"shares", shares_json(rank.shares)}});
  Json& by_transfer = json["by_transfer"] = Json::array();
  for (const TransferSummary& one : s.by_transfer)
    by_transfer.push_back({{"name", one.name},
                           {"tensors", one.tensors},
                           {"what", one.what},
                           {"backend", one.backend},
                           {"calls", one.calls},
                           {"bytes", one.bytes},
                           {"transfer_ns", one.transfer},
                           {"waiting_ns", one.waiting},
                           {"bus_gbps", one.bus_gbps}});
  add_links(s, json);
  Json& advice = json["advice"] = Json::array();
  for (const Advice& one : s.advice) advice.push_back({{"gain", one.gain}, {"text", one.text}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rueda::timeline
